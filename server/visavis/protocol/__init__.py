"""Wire protocols: each module maps one wire to the conversation's own events and back."""
