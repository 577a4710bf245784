//! A request of the kernel: a header and a body. The body is parsed from its start.

use crate::protocol::Errno;
use crate::protocol::abi::InHeader;
use zerocopy::{FromBytes, Immutable, KnownLayout};

/// A request in the read buffer. Parsed names and data borrow from that buffer.
pub struct Request<'a> {
    /// The header.
    pub header: InHeader,
    /// The bytes that are not parsed yet: `body`, and then `rest`, which is empty unless the parts
    /// of the request are separate.
    body: &'a [u8],
    rest: &'a [u8],
}

impl<'a> Request<'a> {
    /// Parses the header of `bytes`, as read from the device; `None` if `bytes` is shorter than a
    /// header.
    pub fn new(bytes: &'a [u8]) -> Option<Request<'a>> {
        let (header, body) = InHeader::read_from_prefix(bytes).ok()?;
        Some(Request { header, body, rest: &[] })
    }

    /// Returns a request whose parts are separate, as in a ring: the record of the operation, and
    /// the remaining bytes of the body.
    pub fn of_parts(header: InHeader, operation: &'a [u8], rest: &'a [u8]) -> Request<'a> {
        let mut request = Request { header, body: operation, rest };
        request.go_on();
        request
    }

    fn go_on(&mut self) {
        if self.body.is_empty() {
            self.body = std::mem::take(&mut self.rest);
        }
    }

    /// Parses the next record.
    ///
    /// # Errors
    /// EINVAL if the rest of the body is shorter than the record.
    pub fn take<T: FromBytes + Immutable + KnownLayout>(&mut self) -> Result<T, Errno> {
        let (record, rest) = T::read_from_prefix(self.body).map_err(|_| Errno::INVAL)?;
        self.body = rest;
        self.go_on();
        Ok(record)
    }

    /// Parses the next string and returns it without its NUL.
    ///
    /// # Errors
    /// EINVAL if the rest of the body has no NUL.
    pub fn name(&mut self) -> Result<&'a [u8], Errno> {
        let end = self.body.iter().position(|&b| b == 0).ok_or(Errno::INVAL)?;
        let (name, rest) = self.body.split_at(end);
        self.body = &rest[1..];
        self.go_on();
        Ok(name)
    }

    /// Returns the next `len` bytes.
    ///
    /// # Errors
    /// EINVAL if fewer bytes are left.
    pub fn data(&mut self, len: usize) -> Result<&'a [u8], Errno> {
        let (data, rest) = self.body.split_at_checked(len).ok_or(Errno::INVAL)?;
        self.body = rest;
        self.go_on();
        Ok(data)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::abi::RenameIn;

    fn with_body(body: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; size_of::<InHeader>()];
        bytes.extend_from_slice(body);
        bytes
    }

    #[test]
    fn fields_of_a_body_are_decoded_in_order() {
        let mut body = 42u64.to_ne_bytes().to_vec();
        body.extend_from_slice(b"old\0new\0");
        let bytes = with_body(&body);
        let mut request = Request::new(&bytes).unwrap();
        assert_eq!(request.take::<RenameIn>().unwrap().newdir, 42);
        assert_eq!(request.name().unwrap(), b"old");
        assert_eq!(request.name().unwrap(), b"new");
        assert_eq!(request.name().unwrap_err(), Errno::INVAL);
    }

    #[test]
    fn a_request_in_parts_is_decoded_like_one_in_a_piece() {
        let header = Request::new(&with_body(&[])).unwrap().header;
        let operation = 42u64.to_ne_bytes();
        let mut request = Request::of_parts(header, &operation, b"old\0new\0");
        assert_eq!(request.take::<RenameIn>().unwrap().newdir, 42);
        assert_eq!(request.name().unwrap(), b"old");
        assert_eq!(request.name().unwrap(), b"new");
        // The first request lacks the record of its operation; the record of the second is too
        // short.
        assert_eq!(Request::of_parts(header, &[], b"name\0").name().unwrap(), b"name");
        let mut cut = Request::of_parts(header, &operation[..4], b"name\0");
        assert!(cut.take::<RenameIn>().is_err());
    }

    #[test]
    fn a_body_that_is_too_short_is_an_error() {
        let bytes = with_body(b"abc");
        let mut request = Request::new(&bytes).unwrap();
        assert!(request.take::<RenameIn>().is_err());
        assert!(request.name().is_err());
        assert!(request.data(4).is_err());
        assert_eq!(request.data(3).unwrap(), b"abc");
        assert!(Request::new(&bytes[..39]).is_none());
    }
}
