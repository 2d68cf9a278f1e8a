"""From token ids to text: detokenizing, stop conditions, escapes."""
