"""Many callers at one address: what each hears, and what the server spends on them."""
