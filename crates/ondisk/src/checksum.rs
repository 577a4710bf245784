//! Checksums: crc32c with the seeds of `metadata_csum`, crc16 of `gdt_csum`.
