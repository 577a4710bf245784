//! The buffer of a reply. Header and data are contiguous, so one write(2) sends them.

use crate::protocol::abi::OutHeader;
use crate::protocol::pages::{PAGE, Pages};
use std::io;
use zerocopy::{Immutable, IntoBytes};

/// The maximum size of a read or write that the kernel may request, in bytes.
pub const MAX_DATA: usize = 1 << 20;

/// The buffer of a reply. In a reply of records, the header starts on a page boundary, so that a
/// short reply lies in a single page. In a reply of bulk data, the data starts on a page boundary.
pub struct Outbox {
    pages: Pages,
    /// The start of the header if records follow it.
    records: usize,
    /// The start of the header of the present reply.
    header: usize,
    len: usize,
}

impl Default for Outbox {
    fn default() -> Outbox {
        Outbox::new()
    }
}

impl Outbox {
    const LEAD: usize = size_of::<OutHeader>();
    const LEN: usize = MAX_DATA + 2 * PAGE;
    /// The start of the header if bulk data follows it.
    const BULK: usize = PAGE - Self::LEAD;

    /// Allocates memory for the largest reply.
    ///
    /// # Panics
    /// If the host has no memory.
    pub fn new() -> Outbox {
        let pages = Pages::new(Self::LEN).expect("memory for a buffer");
        Outbox { pages, records: 0, header: 0, len: 0 }
    }

    /// Allocates a buffer in which every reply starts at [`Outbox::payload`], without a header,
    /// because an entry of a ring has the header in other memory.
    ///
    /// # Errors
    /// The host has no memory.
    pub fn of_payload() -> io::Result<Outbox> {
        let pages = Pages::new(Self::LEN)?;
        Ok(Outbox { pages, records: Self::BULK, header: Self::BULK, len: 0 })
    }

    /// Returns address and length of the memory in which the replies of [`Outbox::of_payload`]
    /// start.
    pub fn payload(&self) -> (*mut u8, usize) {
        (self.pages.address(PAGE), Self::LEN - PAGE)
    }

    /// Returns the first `len` bytes of the payload.
    pub fn payload_bytes(&self, len: usize) -> Option<&[u8]> {
        self.pages.bytes().get(PAGE..)?.get(..len)
    }

    /// Returns the bytes that were appended so far.
    pub fn put_so_far(&self) -> &[u8] {
        &self.pages.bytes()[self.body()..][..self.len]
    }

    /// Gives the memory back to the host. The next use takes memory again.
    pub fn give_back(&mut self) {
        self.pages.give_back();
    }

    /// Clears the buffer.
    pub fn clear(&mut self) {
        (self.header, self.len) = (self.records, 0);
    }

    /// Returns the length of the reply in bytes, without the header.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether the reply has no bytes after the header.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Appends a record.
    ///
    /// # Panics
    /// If the record does not fit. That would be a bug in this program, since no reply of records
    /// is that long.
    pub fn put(&mut self, record: &(impl IntoBytes + Immutable)) {
        self.put_bytes(record.as_bytes());
    }

    /// Appends bytes. Panics like [`Outbox::put`].
    pub fn put_bytes(&mut self, bytes: &[u8]) {
        let at = self.body() + self.len;
        self.pages.bytes_mut()[at..at + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }

    /// Appends zeros up to a multiple of 8 bytes.
    pub fn pad(&mut self) {
        self.put_bytes(&[0; 8][..self.len.next_multiple_of(8) - self.len]);
    }

    /// Clears the buffer, and returns `len` bytes of it (at most `MAX_DATA`), which start on a page
    /// boundary. The caller fills them, and sets the reply's length by [`Outbox::set_len`].
    pub fn data(&mut self, len: usize) -> &mut [u8] {
        (self.header, self.len) = (Self::BULK, 0);
        let at = self.body();
        &mut self.pages.bytes_mut()[at..at + len.min(MAX_DATA)]
    }

    /// Sets the length of the reply in bytes, without the header.
    pub fn set_len(&mut self, len: usize) {
        self.len = len.min(MAX_DATA);
    }

    fn body(&self) -> usize {
        self.header + Self::LEAD
    }

    /// Returns the whole reply to request `unique`: the header and the appended bytes, or only a
    /// header with the error number `errno`.
    pub fn finish(&mut self, unique: u64, errno: Option<i32>) -> &[u8] {
        let len = Self::LEAD + if errno.is_some() { 0 } else { self.len };
        let header = OutHeader { len: len as u32, error: -errno.unwrap_or(0), unique };
        let at = self.header;
        let reply = &mut self.pages.bytes_mut()[at..at + len];
        reply[..Self::LEAD].copy_from_slice(header.as_bytes());
        reply
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bulk_data_lies_on_a_page_boundary() {
        let mut outbox = Outbox::new();
        assert_eq!(outbox.data(MAX_DATA).as_ptr() as usize % PAGE, 0);
        assert_eq!(outbox.data(MAX_DATA).len(), MAX_DATA);
        outbox.set_len(MAX_DATA);
        assert_eq!(outbox.finish(1, None).len(), Outbox::LEAD + MAX_DATA);
    }

    #[test]
    fn a_short_reply_is_in_one_page() {
        let mut outbox = Outbox::new();
        outbox.data(MAX_DATA);
        outbox.clear();
        outbox.put_bytes(&[7; 100]);
        let reply = outbox.finish(7, None);
        assert_eq!((reply.as_ptr() as usize % PAGE, reply.len()), (0, Outbox::LEAD + 100));
    }

    #[test]
    fn a_reply_is_its_header_and_what_was_put() {
        let mut outbox = Outbox::new();
        outbox.put_bytes(b"abc");
        outbox.pad();
        let reply = outbox.finish(7, None);
        assert_eq!(reply[..4], 24u32.to_ne_bytes());
        assert_eq!(reply[4..8], [0; 4]);
        assert_eq!(reply[8..16], 7u64.to_ne_bytes());
        assert_eq!(&reply[16..], b"abc\0\0\0\0\0");
        let error = outbox.finish(8, Some(2));
        assert_eq!(error.len(), 16);
        assert_eq!(error[4..8], (-2i32).to_ne_bytes());
    }
}
