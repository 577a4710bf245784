//! The workloads.

pub(crate) mod data;
pub(crate) mod git;
pub(crate) mod listing;
mod mixed;
pub(crate) mod names;
mod rounds;
pub(crate) mod untar;

use crate::error::Result;
use crate::worker::{Assignment, Worker};
use crate::workload::Workload;

/// Creates the files that `workload` needs, and returns the worker for `given`.
pub(crate) fn start<'a>(workload: Workload, given: Assignment<'a>) -> Result<Box<dyn Worker + 'a>> {
    Ok(match workload {
        Workload::Create => Box::new(names::Create::empty(given)),
        Workload::Stat => Box::new(names::Lookup::new(given, names::Question::Stat)?),
        Workload::Remove => Box::new(names::Remove::new(given)),
        Workload::OpenClose => Box::new(names::Lookup::new(given, names::Question::OpenClose)?),
        Workload::OpenCloseShared => Box::new(names::Lookup::shared(given)?),
        Workload::CreateUnlink => Box::new(names::CreateUnlink::new(given)),
        Workload::CreateStatRemove => Box::new(names::CreateStatRemove::new(given)),
        Workload::CreateUnlinkShared => Box::new(names::CreateUnlink::shared(given)),
        Workload::Anonymous => Box::new(names::Anonymous::new(given)),
        Workload::TreeDiff => Box::new(listing::Walk::new(given, listing::Stride::File)?),
        Workload::ReaddirStat => Box::new(listing::Walk::new(given, listing::Stride::Directory)?),
        Workload::Fallocate2 => Box::new(data::Fallocate2::new(given)?),
        Workload::Rename => Box::new(names::Move::new(given)?),
        Workload::Readdir => Box::new(listing::List::new(given)?),
        Workload::DirectRead => Box::new(data::Direct::new(given, data::Direction::Read)?),
        Workload::DirectWrite => Box::new(data::Direct::new(given, data::Direction::Write)?),
        Workload::SeqRead => Box::new(data::SeqRead::new(given)?),
        Workload::SeqWrite => Box::new(data::SeqWrite::new(given)?),
        Workload::Append => Box::new(data::Append::new(given)?),
        Workload::Fsync => Box::new(names::Create::durable(given)),
        Workload::Untar => Box::new(untar::Untar::new(given)),
        Workload::GitStatus => Box::new(git::Status::new(given)?),
        Workload::Statfs => Box::new(listing::Space::new(given)),
        Workload::Mix => Box::new(start_mixed(given)?),
    })
}

/// Creates a worker for each part of the mix. Each worker has a directory of its own.
fn start_mixed(given: Assignment<'_>) -> Result<mixed::Mixed<'_>> {
    let mut parts = Vec::new();
    for workload in given.scale.mix.workloads() {
        let own = format!("{}/{workload}", given.own);
        given.place.make_dir(&own)?;
        parts.push(start(workload, Assignment { own, shared: given.shared.clone(), ..given })?);
    }
    Ok(mixed::Mixed::new(&given.scale.mix, parts, given.thread.into()))
}
