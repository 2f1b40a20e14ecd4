"""Images: files, folders and arrays."""
