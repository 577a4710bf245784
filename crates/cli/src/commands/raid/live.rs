//! Changes of a mounted array. The server of the mount has the members open and locked, so commands
//! such as `lanefs raid add` send a request to the server. The server makes the change while it
//! serves reads and writes.
//!
//! A request is a JSON object, set as the value of an extended attribute of the mount's root.
//! Reading the attribute returns the state of the latest requests. Only root and the server's user
//! may set or read the attribute. The server makes the change on a separate thread, so the change
//! continues if the command is interrupted.

use super::change::{Change, OnStep, Outcome, Step};
use crate::cli::{Failure, attribute_of_mount};
use lanefs_fuse::{Control, Errno};
use lanefs_lanes::sync::atomic::{AtomicBool, Ordering};
use lanefs_lanes::sync::{Arc, Weak, thread};
use lanefs_lanes::{Mutex, Rank};
use lanefs_raid5::{CatchUp, OpenArray, Progress, Standing};
use rustix::fs::XattrFlags;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::ops::ControlFlow;
use std::path::Path;
use std::time::Duration;

const ATTRIBUTE: &str = "system.lanefs_array";
/// The id of the rebuilds and the resync that the server makes without a request.
const BACKGROUND: &str = "background";
/// The number of requests, finished or not, whose state is kept.
const REMEMBERED: usize = 8;
const PAUSE: Duration = Duration::from_millis(30);

/// The array of a mount, in the mount's server, with the changes in progress.
pub struct LiveArray {
    array: Arc<OpenArray>,
    /// Set at the unmount. A change under way then stops, and continues when the array is used
    /// next.
    ends: AtomicBool,
    jobs: Mutex<Vec<Job>>,
}

/// A change that the server is asked for.
#[derive(Serialize, Deserialize)]
struct Request {
    id: String,
    #[serde(flatten)]
    change: Change,
}

struct Job {
    id: String,
    state: Value,
    thread: Option<thread::JoinHandle<()>>,
}

/// Answers reads and writes of the extended attribute [`ATTRIBUTE`] in the server of the mount.
pub struct LiveControl(pub Arc<LiveArray>);

impl Control for LiveControl {
    fn get(&self, name: &[u8]) -> Option<Vec<u8>> {
        (name == ATTRIBUTE.as_bytes()).then(|| self.0.states().to_string().into_bytes())
    }

    fn set(&self, name: &[u8], value: &[u8]) -> Option<Result<(), Errno>> {
        (name == ATTRIBUTE.as_bytes()).then(|| LiveArray::take(&self.0, value))
    }
}

/// The counters of a mount's array, for `lanefs stats`.
pub struct ArrayFigures(pub Weak<OpenArray>);

impl Control for ArrayFigures {
    fn get(&self, _: &[u8]) -> Option<Vec<u8>> {
        None
    }

    fn set(&self, _: &[u8], _: &[u8]) -> Option<Result<(), Errno>> {
        None
    }

    fn figures(&self) -> Vec<(String, u64)> {
        let Some(open) = self.0.upgrade() else { return Vec::new() };
        let (array, status) = (open.array(), open.array().status());
        let missing = status.members.iter().filter(|member| **member != Standing::InSync).count();
        let state = [
            ("rows", array.row_budget() as u64),
            ("members", status.members.len() as u64),
            ("not_in_sync", missing as u64),
            ("unsynced_rows", status.unsynced_rows),
        ];
        let state = state.into_iter().map(|(name, value)| (format!("array.state.{name}"), value));
        let counts = array.statistics().named().into_iter();
        counts.map(|(name, count)| (format!("array.{name}"), count)).chain(state).collect()
    }
}

impl LiveArray {
    /// Creates the state of a new mount.
    pub fn new(array: Arc<OpenArray>) -> LiveArray {
        let jobs = Mutex::new(Rank::Bucket, Vec::new());
        LiveArray { array, ends: AtomicBool::new(false), jobs }
    }

    /// Ends the work at the unmount: stops the changes under way, waits until they have stopped,
    /// and returns the array.
    pub fn end(self: Arc<LiveArray>) -> Arc<OpenArray> {
        self.ends.store(true, Ordering::Release);
        let threads: Vec<_> = self.jobs.lock().iter_mut().filter_map(|j| j.thread.take()).collect();
        for thread in threads {
            // If the thread panicked, its panic message has been printed already.
            let _ = thread.join();
        }
        self.array.clone()
    }

    /// Returns the states of the latest requests, and that of the array's own background work.
    fn states(&self) -> Value {
        let background = match self.array.caught_up() {
            None => None,
            Some(CatchUp::Failed(error)) => {
                Some(json!({ "id": BACKGROUND, "state": "failed", "text": error }))
            }
            Some(CatchUp::Working) => Some(json!({ "id": BACKGROUND, "state": "working" })),
            Some(CatchUp::Done) => Some(json!({ "id": BACKGROUND, "state": "done" })),
            Some(CatchUp::Stopped) => Some(json!({ "id": BACKGROUND, "state": "stopped" })),
        };
        self.jobs.lock().iter().map(|job| job.state.clone()).chain(background).collect()
    }

    /// Starts the change that a request describes.
    fn take(this: &Arc<LiveArray>, value: &[u8]) -> Result<(), Errno> {
        let request = serde_json::from_slice(value);
        let Request { id, change } = request.map_err(|_| Errno::INVAL)?;
        let mut jobs = this.jobs.lock();
        let mut forgotten = None;
        if jobs.len() >= REMEMBERED {
            let done = |job: &Job| job.state.get("state").is_some_and(|state| state != "working");
            let oldest = jobs.iter().position(done).ok_or(Errno::BUSY)?;
            forgotten = jobs.remove(oldest).thread;
        }
        let state = json!({ "id": id, "state": "working" });
        let (worker, of_thread) = (this.clone(), id.clone());
        let thread = thread::spawn(move || worker.work(&of_thread, &change));
        jobs.push(Job { id, state, thread: Some(thread) });
        drop(jobs);
        // Each thread must release its reference to the array before the array is closed.
        // `LiveArray::end` joins only the threads in `jobs`, so the thread of the job that was
        // removed from `jobs` is joined here.
        let _ = forgotten.map(thread::JoinHandle::join);
        Ok(())
    }

    fn work(&self, id: &str, change: &Change) {
        let mut step = |step: Step, progress: Progress| {
            self.set_state(
                id,
                json!({
                    "id": id, "state": "working", "step": step.name(), "done": progress.done,
                    "total": progress.total,
                }),
            );
            match self.ends.load(Ordering::Acquire) {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        };
        let state = match change.carry_out(&self.array, &mut step) {
            Ok(Outcome { text, unreadable }) => {
                json!({ "id": id, "state": "done", "text": text, "unreadable": unreadable })
            }
            Err(failure) => json!({ "id": id, "state": "failed", "text": failure.to_string() }),
        };
        self.set_state(id, state);
    }

    fn set_state(&self, id: &str, state: Value) {
        if let Some(job) = self.jobs.lock().iter_mut().find(|job| job.id == id) {
            job.state = state;
        }
    }
}

/// Returns the state of the background work in the server of the mount on `place`, and that of each
/// request under way; `None` if the server does not tell it to this user.
pub fn work(place: &Path) -> Option<(Value, Vec<Value>)> {
    let value = attribute_of_mount(place, ATTRIBUTE).ok()?;
    let states: Vec<Value> = serde_json::from_slice(&value).ok()?;
    let background = states.iter().find(|state| state["id"] == BACKGROUND).cloned()?;
    let is_asked = |state: &&Value| state["id"] != BACKGROUND && state["state"] == "working";
    Some((background, states.iter().filter(is_asked).cloned().collect()))
}

/// Sends a change to the server of the mount on `place`. Returns the server's result when the
/// change is complete. If `step` ends the wait earlier, returns a line that says which work
/// continues in the server.
pub fn ask(place: &Path, change: &Change, step: &mut OnStep<'_>) -> Result<Outcome, Failure> {
    let failed = |error: rustix::io::Errno| {
        use rustix::io::Errno;
        match error {
            Errno::OPNOTSUPP | Errno::NODATA => Failure::new(
                place.display(),
                "only root and the owner of the mount can change its array",
            ),
            Errno::ROFS => {
                Failure::new(place.display(), "mounted read-only: unmount it to change its members")
            }
            error => Failure::on_host(place)(error),
        }
    };
    let id = uuid::Uuid::from_bytes(lanefs_mkfs::random_uuid()).to_string();
    let request = Request { id: id.clone(), change: change.clone() };
    let request = serde_json::to_string(&request).map_err(Failure::about(place))?;
    rustix::fs::setxattr(place, ATTRIBUTE, request.as_bytes(), XattrFlags::empty())
        .map_err(failed)?;
    loop {
        let value = attribute_of_mount(place, ATTRIBUTE).map_err(failed)?;
        let state: Value = serde_json::from_slice(&value).map_err(Failure::about(place))?;
        let own = state.as_array().into_iter().flatten().find(|state| state["id"] == *id);
        let lost = "the server knows nothing of the request: lanefs raid status shows the array";
        let own = own.ok_or_else(|| Failure::new(place.display(), lost))?;
        let text = || own["text"].as_str().unwrap_or_default().to_owned();
        match own["state"].as_str() {
            Some("done") => {
                let unreadable = own["unreadable"].as_u64().unwrap_or(0);
                return Ok(Outcome { text: text(), unreadable });
            }
            Some("failed") => return Err(Failure::parse(&text())),
            _ => {}
        }
        let number = |name: &str| own[name].as_u64().unwrap_or(0);
        let progress = Progress { done: number("done"), total: number("total") };
        if let Some(now) = own["step"].as_str().and_then(Step::named)
            && step(now, progress).is_break()
        {
            let text = format!("{}: has its slot; {} goes on", change.subject(), now.name());
            return Ok(Outcome { text, unreadable: 0 });
        }
        std::thread::sleep(PAUSE);
    }
}
