//! An entry of a ring: the kernel writes one request into it and takes the reply from it.

use crate::protocol::abi::{InHeader, OutHeader, UringReqHeader};
use crate::protocol::pages::Pages;
use crate::protocol::{Errno, Outbox, Request};
use std::io;
use zerocopy::{FromBytes, IntoBytes};

/// The memory of one request and its reply. While the kernel owns it, no thread has a reference to
/// it ([`super::Ring`]).
pub struct Entry {
    /// A [`UringReqHeader`], and after it the two vectors for REGISTER.
    header: Pages,
    /// The payload, as the kernel calls it: first the rest of the request, later the reply.
    reply: Outbox,
    /// The queue for which the entry was registered.
    pub queue: u16,
}

impl Entry {
    /// The offset of the vectors in the header's page.
    const VECTORS: usize = 1024;

    /// Creates an entry for `queue`.
    ///
    /// # Errors
    /// The host has no memory.
    pub fn new(queue: u16) -> io::Result<Entry> {
        Ok(Entry { header: Pages::new(1)?, reply: Outbox::of_payload()?, queue })
    }

    /// Returns the address of two `struct iovec`, by which REGISTER finds header and payload.
    pub fn vectors(&mut self) -> *mut u8 {
        let (payload, room) = self.reply.payload();
        let header = self.header.address(0);
        let vectors = [header as usize, size_of::<UringReqHeader>(), payload as usize, room];
        let bytes = vectors.as_bytes();
        self.header.bytes_mut()[Self::VECTORS..][..bytes.len()].copy_from_slice(bytes);
        self.header.address(Self::VECTORS)
    }

    fn head(&self) -> UringReqHeader {
        // A page is longer than the record, and sufficiently aligned.
        UringReqHeader::read_from_prefix(self.header.bytes()).expect("a page").0
    }

    /// Returns the number that the kernel requires with the reply.
    pub fn commit_id(&self) -> u64 {
        self.head().commit_id
    }

    /// Returns the header of the request.
    pub fn request_header(&self) -> InHeader {
        InHeader::read_from_prefix(&self.head().in_out).expect("128 bytes").0
    }

    /// Returns the request and the buffer for its reply. The buffer is the payload's memory if the
    /// request has no payload, otherwise `beside`. Returns `None` if the lengths contradict each
    /// other.
    pub fn request<'a>(
        &'a mut self,
        beside: &'a mut Outbox,
    ) -> Option<(Request<'a>, &'a mut Outbox)> {
        let header = self.request_header();
        let payload = self.head().payload_sz;
        let operation =
            header.len.checked_sub(size_of::<InHeader>() as u32)?.checked_sub(payload)?;
        let head = UringReqHeader::ref_from_prefix(self.header.bytes()).ok()?.0;
        let operation = head.op_in.get(..operation as usize)?;
        if payload == 0 {
            self.reply.clear();
            return Some((Request::of_parts(header, operation, &[]), &mut self.reply));
        }
        beside.clear();
        let payload = self.reply.payload_bytes(payload as usize)?;
        Some((Request::of_parts(header, operation, payload), beside))
    }

    /// Completes the reply, either with the contents of the buffer that [`Entry::request`] returned
    /// or with an error.
    pub fn finish(&mut self, beside: &Outbox, error: Option<Errno>) {
        let mut head = self.head();
        let unique = self.request_header().unique;
        let mut len = 0;
        if error.is_none() && head.payload_sz == 0 {
            len = self.reply.len();
        } else if error.is_none() {
            self.reply.clear();
            self.reply.put_bytes(beside.put_so_far());
            len = self.reply.len();
        }
        let total = (size_of::<OutHeader>() + len) as u32;
        let header = OutHeader { len: total, error: -error.map_or(0, |e| e.0), unique };
        head.in_out[..size_of::<OutHeader>()].copy_from_slice(header.as_bytes());
        head.payload_sz = len as u32;
        self.header.bytes_mut()[..size_of::<UringReqHeader>()].copy_from_slice(head.as_bytes());
    }

    /// Returns memory for bulk data to the host until the next use.
    pub fn give_back(&mut self) {
        self.reply.give_back();
    }
}

#[cfg(test)]
mod tests;
