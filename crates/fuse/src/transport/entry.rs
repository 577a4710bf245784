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
mod tests {
    use super::*;
    use crate::protocol::abi::{GetxattrIn, LseekIn};
    use zerocopy::FromZeros;

    /// Returns an entry that is filled as the kernel fills it; `len` is the length in the request's
    /// header.
    fn arrived(operation: &[u8], payload: &[u8], len: usize) -> Entry {
        let mut entry = Entry::new(3).unwrap();
        let mut header = InHeader::new_zeroed();
        (header.len, header.unique, header.opcode) = (len as u32, 7, 22);
        let mut head = UringReqHeader::new_zeroed();
        head.in_out[..40].copy_from_slice(header.as_bytes());
        head.op_in[..operation.len()].copy_from_slice(operation);
        (head.commit_id, head.payload_sz) = (99, payload.len() as u32);
        entry.header.bytes_mut()[..288].copy_from_slice(head.as_bytes());
        entry.reply.clear();
        entry.reply.put_bytes(payload);
        entry
    }

    fn reply(entry: &Entry) -> (i32, u64, Vec<u8>) {
        let head = entry.head();
        let error = i32::from_ne_bytes(head.in_out[4..8].try_into().unwrap());
        let unique = u64::from_ne_bytes(head.in_out[8..16].try_into().unwrap());
        let payload = entry.reply.payload_bytes(head.payload_sz as usize).unwrap();
        (error, unique, payload.to_vec())
    }

    #[test]
    fn a_request_with_a_payload_is_answered_from_another_place() {
        let mut beside = Outbox::new();
        let mut entry = arrived(&[8, 0, 0, 0, 0, 0, 0, 0], b"user.a\0", 40 + 8 + 7);
        assert_eq!((entry.commit_id(), entry.request_header().opcode), (99, 22));
        let (mut request, outbox) = entry.request(&mut beside).unwrap();
        assert_eq!(request.take::<GetxattrIn>().unwrap().size, 8);
        outbox.put_bytes(b"value of ");
        outbox.put_bytes(request.name().unwrap());
        entry.finish(&beside, None);
        assert_eq!(reply(&entry), (0, 7, b"value of user.a".to_vec()));
    }

    #[test]
    fn a_request_without_a_payload_is_answered_in_place_on_a_page_boundary() {
        let mut beside = Outbox::new();
        let mut entry = arrived(&[1; 24], b"", 40 + 24);
        let (mut request, outbox) = entry.request(&mut beside).unwrap();
        assert_eq!(request.take::<LseekIn>().unwrap().whence, 0x0101_0101);
        let data = outbox.data(100);
        assert_eq!(data.as_ptr() as usize % 4096, 0);
        data[..3].copy_from_slice(b"abc");
        outbox.set_len(3);
        entry.finish(&beside, None);
        assert_eq!(reply(&entry), (0, 7, b"abc".to_vec()));
        entry.finish(&beside, Some(Errno::IO));
        assert_eq!(reply(&entry), (-5, 7, Vec::new()));
    }

    #[test]
    fn lengths_that_contradict_each_other_are_no_request() {
        let mut beside = Outbox::new();
        for len in [0, 39, 40 + 6, 40 + 7 + 129, u32::MAX as usize] {
            assert!(arrived(&[], b"user.a\0", len).request(&mut beside).is_none(), "{len}");
        }
        let mut entry = arrived(&[], b"", 40);
        let mut head = entry.head();
        head.payload_sz = u32::MAX;
        entry.header.bytes_mut()[..288].copy_from_slice(head.as_bytes());
        assert!(entry.request(&mut beside).is_none());
    }
}
