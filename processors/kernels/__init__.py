"""Operations with more than one implementation: one file for each, and a function that chooses."""
