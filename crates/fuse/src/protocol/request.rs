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
mod tests;
