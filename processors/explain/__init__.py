"""What each stage of a chain did to a row of logits, which stage decided the token, and who came next."""
