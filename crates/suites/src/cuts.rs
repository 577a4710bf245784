//! Power cuts during commands that change a whole image: recover, tune, resize, trim, edit.
//!
//! The writes of a command are recorded. A state is what a power cut after one of the writes can
//! leave: each write that no flush covers is kept, lost or torn. Each state is tested twice. When
//! the state is recovered, the files must be as they were before the command, or as the command
//! would have left them. When the command runs again on the state, the files must be as the command
//! leaves them. In both cases e2fsck must find nothing. A read-only mount and `lanefs check` read
//! some states as they are, and all states of small resizes. If they can, e2fsck and the kernel also
//! recover a copy of each state.

mod bases;
mod commands;
mod trial;

use crate::image::Image;
use crate::listing::Listing;
use crate::random::in_parallel;
use commands::COMMANDS;
use lanefs_device::Device;
use lanefs_lanes::sync::atomic::{AtomicU64, Ordering};
use lanefs_lanes::sync::unscheduled::{Mutex, PoisonError};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use trial::{Effort, Reads, Trial};

pub use bases::{dumpe2fs, filled, in_memory, same, seen};
pub use trial::{ByOthers, Change, Checked, read_as_it_is};

/// The largest number of rounds. Each round simulates power cuts in all commands. The trees and the
/// choice of surviving writes differ from round to round.
const MOST_ROUNDS: u64 = 1000;

/// Counts of the checked states, by command.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tally {
    /// For each command, the counts of its recordings, events and states.
    pub commands: BTreeMap<&'static str, Checked>,
}

impl Tally {
    /// Returns the number of distinct states.
    pub fn states(&self) -> u64 {
        self.commands.values().map(|checked| checked.states).sum()
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} distinct states of power cuts", self.states())?;
        self.commands.iter().try_for_each(|(name, checked)| write!(f, "\n  {name}: {checked}"))
    }
}

/// Runs all commands with cuts of the power until `states` distinct states are checked. Several
/// commands run in parallel, one on each processor. Calls `tell` after each recording.
///
/// # Errors
/// Returns the first state in which a check fails, with its command and seed.
pub fn many(seed: u64, states: u64, tell: &(dyn Fn(&Tally) + Sync)) -> Result<Tally, String> {
    let found = Mutex::new((Tally::default(), None));
    let count = AtomicU64::new(0);
    let jobs = COMMANDS.len() as u64 * MOST_ROUNDS;
    in_parallel((0..jobs).collect(), |job| {
        let command = &COMMANDS[(job % COMMANDS.len() as u64) as usize];
        let seed = seed + job / COMMANDS.len() as u64;
        let more = || count.load(Ordering::Relaxed) < states;
        let goes_on = || {
            let found = found.lock().unwrap_or_else(PoisonError::into_inner);
            found.1.is_none() && more()
        };
        if !goes_on() {
            return;
        }
        let on_state = || {
            count.fetch_add(1, Ordering::Relaxed);
            goes_on()
        };
        let result = command.check(seed, &|device| device, &on_state);
        let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
        match result {
            Ok(checked) => found.0.commands.entry(command.name).or_default().add(checked),
            Err(why) => {
                found.1.get_or_insert(format!("{}, seed {seed}: {why}", command.name));
            }
        }
        tell(&found.0);
    });
    match found.into_inner().unwrap_or_else(PoisonError::into_inner) {
        (tally, None) => Ok(tally),
        (tally, Some(why)) => Err(format!("after {tally}\n{why}")),
    }
}

/// Cuts the power during one command. The command runs on the device that `wrap` returns.
///
/// # Errors
/// Returns the first state in which a check fails.
///
/// # Panics
/// If there is no command of this name.
pub fn check(
    name: &str,
    seed: u64,
    wrap: &dyn Fn(Arc<dyn Device>) -> Arc<dyn Device>,
) -> Result<Checked, String> {
    let command = COMMANDS.iter().find(|command| command.name == name);
    command.unwrap_or_else(|| panic!("no command {name}")).check(seed, wrap, &|| true)
}

/// The effort of [`at_every_cut`] and [`between`], which test a single change.
const THOROUGH: Effort =
    Effort { seed: 0, torn: 5, many: 300, reads: Reads::Some, by_others: ByOthers::No };

/// The number of states of each recording in [`at_some_states`], which tests one of many changes.
const FEW: usize = 50;

/// Cuts the power during a change that must leave the contents as they are. `check` checks the
/// image after the change.
///
/// # Panics
/// At the first state in which a check fails.
pub fn at_every_cut(base: Arc<dyn Device>, change: Change<'_>, check: &dyn Fn(&Image)) -> Checked {
    let before = seen(base.clone());
    between(base, change, [&before, &before], check)
}

/// Works like [`at_every_cut`], with fewer states of each cut, and with e2fsck and the kernel.
///
/// # Panics
/// At the first state in which a check fails.
pub fn at_some_states(
    base: Arc<dyn Device>,
    change: Change<'_>,
    by_others: ByOthers,
    check: &dyn Fn(&Image),
) -> Checked {
    let before = seen(base.clone());
    let trial = Trial { change, ends: [&before, &before], check };
    let effort = Effort { seed: 0, torn: 0, many: FEW, reads: Reads::All, by_others };
    trial.run(&base, effort, &|| true).unwrap_or_else(|why| panic!("{why}"))
}

/// Works like [`at_every_cut`], but the change must turn the first contents in `ends` into the
/// second.
///
/// # Panics
/// At the first state in which a check fails.
pub fn between(
    base: Arc<dyn Device>,
    change: Change<'_>,
    ends: [&Listing; 2],
    check: &dyn Fn(&Image),
) -> Checked {
    let trial = Trial { change, ends, check };
    trial.run(&base, THOROUGH, &|| true).unwrap_or_else(|why| panic!("{why}"))
}
