//! Where a request is read to, header and data in one piece, so that one read(2) moves it.

use crate::protocol::MAX_DATA;
use crate::protocol::abi::{InHeader, WriteIn};
use crate::protocol::pages::{PAGE, Pages};

/// Room for one request. The data of a write lies on a page boundary, so that it can go to a device
/// opened for direct I/O without a copy.
pub struct Inbox {
    pages: Pages,
}

impl Inbox {
    const LEAD: usize = size_of::<InHeader>() + size_of::<WriteIn>();
    const LEN: usize = Self::LEAD + MAX_DATA + PAGE;
    /// Where the header begins.
    const START: usize = PAGE - Self::LEAD;

    /// Room for the largest request.
    ///
    /// # Panics
    /// If the host has no memory.
    pub fn new() -> Inbox {
        let pages = Pages::new(Self::START + Self::LEN).expect("memory for a buffer");
        Inbox { pages }
    }

    /// All of the room.
    pub fn room(&mut self) -> &mut [u8] {
        &mut self.pages.bytes_mut()[Self::START..Self::START + Self::LEN]
    }

    /// The first `len` bytes of it.
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
