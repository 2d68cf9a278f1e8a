"""Token ids to text: detokenizing, stop conditions, escapes."""
