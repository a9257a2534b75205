"""What others have in the place of these locks: the interfaces that programs already use."""
