#!/bin/sh
# Classification: the output is always one of the choices.
set -eu
for sentence in "Mia is a 34 year old baker from Oslo." "Tom has a brown dog named Rex."; do
  kind=$(gencli run -q -t 0 --choice ' {"name' --choice ' {"pet' --choice ' {"buyer' "Sentence: $sentence
JSON:")
  case $kind in
    *name) echo "person: $sentence" ;;
    *pet) echo "pet: $sentence" ;;
    *) echo "purchase: $sentence" ;;
  esac
done
