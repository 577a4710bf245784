//! Records the transaction in which an object is dirty. The record is stored in the object, and the
//! object's guard (a lock, see docs/locking.md) protects it.

use crate::tid::Tid;

/// Tracks changes of one object whose image at commit has the type `I`.
///
/// At most two transactions matter for an object: the running one, and the previous one while it is
/// being captured. Before a thread changes an object that the previous transaction has changed but
/// not captured, the thread saves the object's image. The committer takes the saved image if there
/// is one, and otherwise the object's present content.
///
/// # Locking
/// The tracked object's guard protects this value.
#[derive(Debug)]
pub struct Tracked<I> {
    dirty: Option<Tid>,
    frozen: Option<(Tid, I)>,
}

impl<I> Default for Tracked<I> {
    fn default() -> Tracked<I> {
        Tracked::new()
    }
}

impl<I> Tracked<I> {
    /// Creates the state of a clean object.
    pub fn new() -> Tracked<I> {
        Tracked { dirty: None, frozen: None }
    }

    /// Called before each change of the object in `tid`; `capture` returns the image of the object
    /// before that change. Returns true if the object is newly dirty in `tid`. In this case the
    /// caller puts the object on the list of its handle ([`crate::Handle::dirty`]).
    pub fn touch(&mut self, tid: Tid, capture: impl FnOnce() -> I) -> bool {
        let before = self.dirty.replace(tid);
        debug_assert!(before.is_none_or(|b| b <= tid), "touched in {tid} after {before:?}");
        match before {
            Some(same) if same == tid => return false,
            Some(earlier) => {
                debug_assert!(self.frozen.is_none(), "two transactions wait for their images");
                self.frozen = Some((earlier, capture()));
            }
            None => {}
        }
        true
    }

    /// Returns the object's image at the end of `tid`, for the committer. Returns `None` if the
    /// object has no changes of `tid` that are still to be captured.
    pub fn take(&mut self, tid: Tid, capture: impl FnOnce() -> I) -> Option<I> {
        if let Some((_, image)) = self.frozen.take_if(|(frozen, _)| *frozen == tid) {
            return Some(image);
        }
        self.dirty.take_if(|dirty| *dirty == tid).map(|_| capture())
    }

    /// Returns the latest transaction whose changes of the object were not captured yet.
    pub fn dirty(&self) -> Option<Tid> {
        self.dirty
    }

    /// Returns true if no transaction needs an image of the object any more. The object may then be
    /// evicted.
    pub fn is_clean(&self) -> bool {
        self.dirty.is_none() && self.frozen.is_none()
    }

    /// Records that the object is deleted in `tid`, so that no image as of `tid` is needed. The
    /// previous transaction may still need an image of the object; `capture` returns that image.
    pub fn bury(&mut self, tid: Tid, capture: impl FnOnce() -> I) {
        if let Some(earlier) = self.dirty.take().filter(|dirty| *dirty != tid) {
            self.frozen = Some((earlier, capture()));
        }
    }
}

#[cfg(test)]
mod tests;
