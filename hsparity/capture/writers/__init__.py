"""Writers of trainers' formats, one per file. Each defines `WRITER`."""
