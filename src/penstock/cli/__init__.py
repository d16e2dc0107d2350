"""The command line: the only code that turns errors into exit codes, and, with the console sink, that prints."""
