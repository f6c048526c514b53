//! Bad inputs over TCP; being written.
