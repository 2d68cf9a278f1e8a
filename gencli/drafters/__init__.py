"""What proposes drafts: one file each, behind the small class in base."""
