//! The caller of an operation: a thread of a program that uses the library, or a client of a mount
//! (several threads serve a client in turn).

use lanefs_lanes::{Lane, MAX_LANES};
use std::cell::Cell;

/// A number below [`MAX_LANES`] that distinguishes callers: the lane of the thread, or the client's
/// number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Caller(u16);

#[derive(Debug, Clone, Copy)]
enum Client {
    /// The thread works for itself.
    Itself,
    Unknown,
    Number(u16),
}

thread_local! { static CLIENT: Cell<Client> = const { Cell::new(Client::Itself) } }

/// Sets the client that the calling thread serves from now on. `client` is the client's process or
/// thread id, or `None` if the client is unknown. It is unknown, for example, when the kernel
/// writes pages back. The location of new files depends on the client. A thread that never calls
/// this function works for itself.
pub fn work_for(client: Option<u32>) {
    // Consecutive ids get different numbers.
    let number = |id| Client::Number((id as usize % MAX_LANES) as u16);
    CLIENT.with(|current| current.set(client.map_or(Client::Unknown, number)));
}

impl Caller {
    /// Returns the caller of the current operation; `None` if it is unknown.
    pub(crate) fn current() -> Option<Caller> {
        match CLIENT.with(Cell::get) {
            Client::Itself => Some(Caller::of_thread()),
            Client::Unknown => None,
            Client::Number(number) => Some(Caller(number)),
        }
    }

    /// Returns the caller that stands for the calling thread.
    pub(crate) fn of_thread() -> Caller {
        Caller::of(Lane::current())
    }

    fn of(lane: Lane) -> Caller {
        Caller(lane.index() as u16)
    }

    #[cfg(test)]
    pub(crate) fn all() -> impl Iterator<Item = Caller> {
        (0..MAX_LANES as u16).map(Caller)
    }

    /// Returns the caller's number.
    pub(crate) fn index(self) -> u32 {
        self.0.into()
    }
}
