//! Functions that make parts of tar archives byte by byte.
#![allow(dead_code)] // each test program uses a part

/// Returns a header of the ustar format.
pub fn header(name: &[u8], kind: u8, size: u64, link: &[u8]) -> Vec<u8> {
    let mut block = vec![0u8; 512];
    block[..name.len()].copy_from_slice(name);
    block[100..107].copy_from_slice(b"0000644");
    block[108..115].copy_from_slice(b"0000000");
    block[116..123].copy_from_slice(b"0000000");
    block[124..135].copy_from_slice(format!("{size:011o}").as_bytes());
    block[136..147].copy_from_slice(b"00000000001");
    block[156] = kind;
    block[157..157 + link.len()].copy_from_slice(link);
    block[257..265].copy_from_slice(b"ustar\x0000");
    seal(&mut block);
    block
}

/// Sets the checksum of a header.
pub fn seal(block: &mut [u8]) {
    block[148..156].fill(b' ');
    let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
    block[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
}

/// Returns the entry of a regular file.
pub fn file(name: &str, data: &[u8]) -> Vec<u8> {
    entry(header(name.as_bytes(), b'0', data.len() as u64, b""), data)
}

/// Returns an entry of type `kind`, for example a link, without data.
pub fn link(name: &str, kind: u8, target: &str) -> Vec<u8> {
    header(name.as_bytes(), kind, 0, target.as_bytes())
}

/// Returns an extended header, which describes the next entry.
pub fn pax(records: &[(&str, &str)]) -> Vec<u8> {
    let mut data = Vec::new();
    for (key, value) in records {
        let rest = format!(" {key}={value}\n");
        let mut len = rest.len() + 1;
        while len.to_string().len() + rest.len() != len {
            len += 1;
        }
        data.extend(format!("{len}{rest}").bytes());
    }
    extended(b'x', &data)
}

/// Returns a header of this type, whose data describes the next entry.
pub fn extended(kind: u8, data: &[u8]) -> Vec<u8> {
    entry(header(b"extended", kind, data.len() as u64, b""), data)
}

/// Returns a header with its data.
pub fn entry(mut header: Vec<u8>, data: &[u8]) -> Vec<u8> {
    header.extend(data);
    header.resize(header.len().next_multiple_of(512), 0);
    header
}
