//! Memory that begins on a page boundary.

use rustix::mm::{MapFlags, ProtFlags};
use std::ffi::c_void;
use std::io;
use std::ptr::NonNull;

/// The unit that buffers are laid out in. A host may have larger pages; these are aligned to them too.
pub const PAGE: usize = 4096;

/// Whole pages of zeros. Untouched ones cost nothing.
#[derive(Debug)]
pub struct Pages {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the memory belongs to this value alone, as that of a Vec<u8> does.
unsafe impl Send for Pages {}
// SAFETY: a shared reference only reads it.
unsafe impl Sync for Pages {}

impl Pages {
    /// At least `len` bytes.
    ///
    /// # Errors
    /// The host has no room.
    pub fn new(len: usize) -> io::Result<Pages> {
        let len = len.max(1).next_multiple_of(PAGE);
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping, at an address of the kernel's choice, that overlaps no other memory.
        let start = unsafe {
            rustix::mm::mmap_anonymous(std::ptr::null_mut(), len, access, MapFlags::PRIVATE)
        }?;
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Pages { start, len })
    }

    /// All of it.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the mapping has so many bytes, which mmap initialised to 0, and lives as long as `self`.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }

    /// All of it, to be changed.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`, and `self` is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }

    /// The address of byte `at`, for a kernel that reads and writes there.
    pub fn address(&self, at: usize) -> *mut u8 {
        self.start.as_ptr().wrapping_add(at)
    }

    /// Gives the memory back to the host until it is touched again; it is zeros then.
    pub fn give_back(&mut self) {
        // SAFETY: private pages of this value, which no reference looks at meanwhile.
        // On failure they just stay.
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
        // SAFETY: the mapping that `new` made, to which no reference is left.
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
