//! The buffer of a request. Header and data are contiguous, so one read(2) fills it.

use crate::protocol::MAX_DATA;
use crate::protocol::abi::{InHeader, WriteIn};
use crate::protocol::pages::{PAGE, Pages};

/// The buffer of one request. The data of a write is on a page boundary, so that a device opened
/// for direct I/O can take it without a copy.
pub struct Inbox {
    pages: Pages,
}

impl Inbox {
    const LEAD: usize = size_of::<InHeader>() + size_of::<WriteIn>();
    const LEN: usize = Self::LEAD + MAX_DATA + PAGE;
    /// The offset of the header in `pages`. It puts the data of a write on a page boundary.
    const START: usize = PAGE - Self::LEAD;

    /// Allocates memory for the largest request.
    ///
    /// # Panics
    /// If the host has no memory.
    pub fn new() -> Inbox {
        let pages = Pages::new(Self::START + Self::LEN).expect("memory for a buffer");
        Inbox { pages }
    }

    /// Returns the whole buffer.
    pub fn room(&mut self) -> &mut [u8] {
        &mut self.pages.bytes_mut()[Self::START..Self::START + Self::LEN]
    }

    /// Returns the first `len` bytes of the buffer.
    pub fn filled(&self, len: usize) -> &[u8] {
        &self.pages.bytes()[Self::START..Self::START + len.min(Self::LEN)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_data_of_a_write_lies_on_a_page_boundary() {
        let mut inbox = Inbox::new();
        let written = inbox.room()[Inbox::LEAD..].as_ptr() as usize;
        assert_eq!(written % PAGE, 0);
    }
}
