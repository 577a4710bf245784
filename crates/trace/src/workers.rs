//! Threads that exist at the same time and work in turn.

use lanefs_lanes::sync::unscheduled::{Condvar, Mutex, MutexGuard, PoisonError};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// Threads, each with a state of its own that the thread created and that stays on the thread.
///
/// Passing a job allocates nothing. Memory that one thread allocates and another frees would go to
/// the second thread's part of the allocator, and would look like a shared line.
pub struct Workers<'scope, S> {
    desks: &'scope [Desk<S>],
}

/// The next job of a thread.
struct Desk<S> {
    work: Mutex<Work<S>>,
    changed: Condvar,
}

enum Work<S> {
    Idle,
    Todo(Job<S>),
    Over,
}

/// A pointer to a job. The job is on the stack of the thread that waits for the job's result.
struct Job<S>(*mut (dyn FnMut(&mut S) + 'static));

// SAFETY: the closure is `Send`, as `Workers::on` requires. While a thread has the pointer, the
// thread that created the closure only waits.
unsafe impl<S> Send for Job<S> {}

impl<S> Desk<S> {
    fn work(&self) -> MutexGuard<'_, Work<S>> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, work: MutexGuard<'a, Work<S>>) -> MutexGuard<'a, Work<S>> {
        self.changed.wait(work).unwrap_or_else(PoisonError::into_inner)
    }

    fn serve(&self, mut state: S) {
        let mut work = self.work();
        loop {
            match &*work {
                Work::Over => return,
                Work::Idle => work = self.wait(work),
                Work::Todo(job) => {
                    // SAFETY: `Workers::on` keeps the closure alive and does not access it until
                    // the desk is idle again.
                    unsafe { (*job.0)(&mut state) };
                    *work = Work::Idle;
                    self.changed.notify_all();
                }
            }
        }
    }
}

/// Terminates the threads, even if the work panics.
struct End<'a, S>(&'a [Desk<S>]);

impl<S> Drop for End<'_, S> {
    fn drop(&mut self) {
        for desk in self.0 {
            *desk.work() = Work::Over;
            desk.changed.notify_all();
        }
    }
}

impl<S> Workers<'_, S> {
    /// Starts `threads` threads, each with the state that `make` creates from its number, and runs
    /// `work` with them. The threads terminate when `work` returns.
    pub fn with<R>(
        threads: usize,
        make: impl Fn(usize) -> S + Sync,
        work: impl FnOnce(&Workers<'_, S>) -> R,
    ) -> R {
        let desks: Vec<Desk<S>> = (0..threads)
            .map(|_| Desk { work: Mutex::new(Work::Idle), changed: Condvar::new() })
            .collect();
        let (desks, make) = (&*desks, &make);
        std::thread::scope(|scope| {
            let _end = End(desks);
            for (number, desk) in desks.iter().enumerate() {
                scope.spawn(move || desk.serve(make(number)));
            }
            work(&Workers { desks })
        })
    }

    /// Returns the number of threads.
    pub fn threads(&self) -> usize {
        self.desks.len()
    }

    /// Runs `job` on thread number `thread`, and returns its result.
    ///
    /// # Panics
    /// If there is no such thread, or if the job panics.
    pub fn on<R: Send>(&self, thread: usize, job: impl FnOnce(&mut S) -> R + Send) -> R {
        let desk = &self.desks[thread];
        let mut job = Some(job);
        let mut result = None;
        let mut once = |state: &mut S| {
            if let Some(job) = job.take() {
                result = Some(catch_unwind(AssertUnwindSafe(|| job(state))));
            }
        };
        let erased: *mut (dyn FnMut(&mut S) + '_) = &mut once;
        // SAFETY: only the lifetime is changed; no thread has the pointer after this function has
        // returned.
        let erased: *mut (dyn FnMut(&mut S) + 'static) = unsafe { std::mem::transmute(erased) };
        let mut work = desk.work();
        *work = Work::Todo(Job(erased));
        desk.changed.notify_all();
        while matches!(*work, Work::Todo(_)) {
            work = desk.wait(work);
        }
        drop(work);
        match result {
            Some(Ok(value)) => value,
            Some(Err(panic)) => resume_unwind(panic),
            None => panic!("a thread ended early"),
        }
    }
}
