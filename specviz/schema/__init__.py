"""What can be asked for and what happened: request settings, traces and their file format. Plain data."""
