"""The same caller against our server and its peers: who starts, stops and yields how, and at what cost."""
