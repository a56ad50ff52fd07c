"""Other people's paged attention behind the interface of ours; nothing of it is repaired here."""
