//! Sets up each worker on its own thread.

use crate::error::Result;
use lanefs_lanes::Lane;
use lanefs_lanes::sync::thread;
use lanefs_lanes::sync::unscheduled::{Barrier, mpsc};

/// Runs `act` on one item after the other, each on a separate thread. All these threads exist at
/// the same time, so each has its own lane.
///
/// Lanefs places a new directory in the region of the lane that creates it. If one thread created
/// the directories of all workers, the inodes of all workers would be in the same few groups, and
/// the workers would contend there. In mdtest and will-it-scale, too, each process creates its own
/// directory.
pub(crate) fn one_by_one<T: Send, U: Send>(
    items: impl IntoIterator<Item = T, IntoIter: ExactSizeIterator>,
    act: impl Fn(T) -> Result<U> + Sync,
) -> Result<Vec<U>> {
    let items = items.into_iter();
    let (all_there, act) = (Barrier::new(items.len()), &act);
    thread::scope(|scope| {
        let threads: Vec<_> = items
            .map(|item| {
                let (go, begin) = mpsc::channel::<()>();
                let all_there = &all_there;
                let thread = scope.spawn(move || {
                    // A thread gets its lane at its first use, and gives the lane back when it
                    // terminates.
                    let _ = Lane::current();
                    all_there.wait();
                    begin.recv().ok().map(|()| act(item))
                });
                (go, thread)
            })
            .collect();
        let mut done = Vec::with_capacity(threads.len());
        for (go, thread) in threads {
            // Sending cannot fail, because the thread exists and waits for this message.
            let _ = go.send(());
            let ended = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            done.extend(ended.transpose()?);
        }
        Ok(done)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;
    use std::collections::HashSet;

    #[test]
    fn each_item_has_a_lane_of_its_own_and_its_turn() {
        let mut seen = Vec::new();
        let one_at_a_time = lanefs_lanes::sync::unscheduled::Mutex::new(&mut seen);
        let lanes = one_by_one(0..5, |n| {
            one_at_a_time.try_lock().expect("nobody else's turn").push(n);
            Ok(Lane::current().index())
        });
        assert_eq!(lanes.expect("no item fails").into_iter().collect::<HashSet<_>>().len(), 5);
        assert_eq!(seen, [0, 1, 2, 3, 4]);
    }

    #[test]
    fn after_one_that_fails_none_begins() {
        let failed = one_by_one(0..3, |n| match n {
            0 => Ok(()),
            1 => Err(Error::Interrupted),
            _ => panic!("begun after the failure"),
        });
        assert!(matches!(failed, Err(Error::Interrupted)));
    }
}
