//! Memory that starts on a page boundary.

use rustix::mm::{MapFlags, ProtFlags};
use std::ffi::c_void;
use std::io;
use std::ptr::NonNull;

/// The page size that buffer layouts assume. On a host with larger pages, mappings are aligned to
/// the host's pages too.
pub const PAGE: usize = 4096;

/// Whole pages of zeros. Pages that were never touched use no memory.
#[derive(Debug)]
pub struct Pages {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: this value owns the memory exclusively, as a Vec<u8> does.
unsafe impl Send for Pages {}
// SAFETY: a shared reference only reads the memory.
unsafe impl Sync for Pages {}

impl Pages {
    /// Maps at least `len` bytes.
    ///
    /// # Errors
    /// The host has no memory.
    pub fn new(len: usize) -> io::Result<Pages> {
        let len = len.max(1).next_multiple_of(PAGE);
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel chooses the address of the new mapping, so the mapping overlaps no
        // other memory.
        let start = unsafe {
            rustix::mm::mmap_anonymous(std::ptr::null_mut(), len, access, MapFlags::PRIVATE)
        }?;
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Pages { start, len })
    }

    /// Returns all bytes.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the mapping has `len` bytes, which mmap initialised to 0, and lives as long as
        // `self`.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }

    /// Returns all bytes, mutably.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`, and `self` is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }

    /// Returns the address of byte `at`. The kernel may read and write there.
    pub fn address(&self, at: usize) -> *mut u8 {
        self.start.as_ptr().wrapping_add(at)
    }

    /// Returns the memory to the host. The next access to the memory finds zeros.
    pub fn give_back(&mut self) {
        // SAFETY: these are private pages of this value, and no reference to them exists.
        // If the call fails, the pages stay.
        let _ = unsafe {
            rustix::mm::madvise(
                self.start.as_ptr().cast::<c_void>(),
                self.len,
                rustix::mm::Advice::LinuxDontNeed,
            )
        };
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: this is the mapping that `new` created, and no reference to it is left.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast::<c_void>(), self.len) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_zeros_when_new_and_when_given_back() {
        let mut pages = Pages::new(PAGE + 1).unwrap();
        assert_eq!((pages.bytes().len(), pages.address(0) as usize % PAGE), (2 * PAGE, 0));
        assert!(pages.bytes().iter().all(|b| *b == 0));
        pages.bytes_mut()[PAGE..].fill(7);
        pages.give_back();
        assert!(pages.bytes().iter().all(|b| *b == 0));
    }
}
