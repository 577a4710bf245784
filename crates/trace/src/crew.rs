//! Threads that live together and work in turn.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc;

type Job<'env, S> = Box<dyn FnOnce(&mut S) + Send + 'env>;

/// Threads, each with a state of its own that was made on it and stays there.
pub struct Crew<'env, S> {
    doors: Vec<mpsc::Sender<Job<'env, S>>>,
}

impl<'env, S> Crew<'env, S> {
    /// Starts `threads` threads, each with what `make` makes of its number, and runs `work` with
    /// them; they end with it.
    pub fn with<R>(
        threads: usize,
        make: impl Fn(usize) -> S + Send + Clone + 'env,
        work: impl FnOnce(&Crew<'env, S>) -> R,
    ) -> R {
        std::thread::scope(|scope| {
            let doors = (0..threads)
                .map(|number| {
                    let (door, jobs) = mpsc::channel::<Job<'env, S>>();
                    let make = make.clone();
                    scope.spawn(move || {
                        let mut state = make(number);
                        jobs.into_iter().for_each(|job| job(&mut state));
                    });
                    door
                })
                .collect();
            work(&Crew { doors })
        })
    }

    /// How many there are.
    pub fn threads(&self) -> usize {
        self.doors.len()
    }

    /// Runs `job` on thread number `thread`, and waits for what it gives.
    ///
    /// # Panics
    /// If there is no such thread, or with the panic of the job.
    pub fn on<R: Send + 'env>(
        &self,
        thread: usize,
        job: impl FnOnce(&mut S) -> R + Send + 'env,
    ) -> R {
        let (answer, result) = mpsc::channel();
        let job = move |state: &mut S| {
            let done = catch_unwind(AssertUnwindSafe(|| job(state)));
            // Whoever asked waits for it.
            answer.send(done).unwrap_or_default();
        };
        assert!(self.doors[thread].send(Box::new(job)).is_ok(), "a thread ended early");
        match result.recv() {
            Ok(Ok(value)) => value,
            Ok(Err(panic)) => resume_unwind(panic),
            Err(_) => panic!("a thread ended early"),
        }
    }
}
