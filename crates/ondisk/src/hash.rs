//! Directory hashes: legacy, half MD4, TEA, signed and unsigned.
