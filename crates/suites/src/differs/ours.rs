//! Repairs by Lanefs.

use super::compare::Loss;
use lanefs_check::repair::{Plan, Shared, plan, plan_around};
use lanefs_check::{Error, Harm, Options, Report, Verdict, check};
use lanefs_device::{Device, OverlayDevice};
use lanefs_ext4::log;
use lanefs_offline::Repair;
use std::sync::Arc;

/// Checks an image.
pub fn checked(device: Arc<dyn Device>) -> Result<Report, String> {
    let options = Options { threads: 1, ..Options::default() };
    check(device, &options, &|_| {}).map_err(|error| error.to_string())
}

/// An image that was repaired.
pub struct Repaired {
    /// The image after the repair.
    pub view: OverlayDevice,
    /// The report before the repair, after copies of damaged descriptors were put back.
    pub before: Report,
    /// What is wrong with the repair.
    pub found: Vec<Loss>,
}

/// Repairs a copy of an image, as `lanefs repair` does.
pub fn repair(damaged: &OverlayDevice) -> Result<Repaired, Loss> {
    let view = Arc::new(damaged.fork());
    let device: Arc<dyn Device> = view.clone();
    let refused = |why: String| (format!("repair refuses: {}", normal(&why)), why);
    let first_plan = planned(&device).map_err(refused)?;
    let mut found = Vec::new();
    let repair = blocks(&first_plan);
    let written = match first_plan.has_log && repair.fits_log(&device) {
        true => repair.write_to_log(&device),
        false => repair.write_in_place(&*device),
    };
    written.map_err(|error| refused(format!("write: {error}")))?;
    let actions: String = first_plan.actions.iter().take(8).map(|act| format!("; {act}")).collect();
    if first_plan.leaves_faults() {
        let fault = first(&first_plan.after);
        found.push((format!("repair leaves faults: {fault}"), shown(&first_plan.after) + &actions));
    } else if let Some(what) = first_plan.after.unchecked.first() {
        found.push((format!("repair leaves a part unchecked: {what}"), actions));
    } else {
        match plan(device.clone(), Shared::Clone) {
            Err(error) => found.push(("the second run refuses".into(), error.to_string())),
            Ok(again) if again.before.verdict() != Verdict::Clean => {
                let fault = first(&again.before);
                found.push((
                    format!("check complains after the repair: {fault}"),
                    shown(&again.before),
                ));
            }
            Ok(again) => {
                let repair = blocks(&again);
                if !repair.recovery.is_empty() || !repair.blocks.is_empty() {
                    let second: String =
                        again.actions.iter().take(5).map(|act| format!("; {act}")).collect();
                    found.push(("a second run is needed".into(), actions + " /" + &second));
                }
            }
        }
    }
    Ok(Repaired {
        view: Arc::try_unwrap(view).unwrap_or_else(|view| view.fork()),
        before: first_plan.before,
        found,
    })
}

/// Plans a repair after the fast commits of the log were replaced, as `lanefs repair` does.
pub fn planned(device: &Arc<dyn Device>) -> Result<Plan, String> {
    let replace = |view: &Arc<dyn Device>| log::replace_fast_commits(view, None);
    drop(replace(device));
    let planned = match plan(device.clone(), Shared::Clone) {
        Err(Error::FastCommits) => {
            plan_around(device.clone(), Shared::Clone, |view| replace(view).unwrap_or(false))
        }
        planned => planned,
    };
    planned.map_err(|error| error.to_string())
}

/// Returns the blocks that a plan writes.
pub fn blocks(plan: &Plan) -> Repair {
    let recovery = plan.recovery().expect("in memory");
    Repair { recovery, blocks: plan.repair().expect("in memory"), block_size: plan.block_size() }
}

/// Returns the first fault of a report, without its numbers.
pub fn first(report: &Report) -> String {
    let fault = report.findings.iter().find(|finding| finding.harm() != Harm::Note);
    fault.map_or(format!("{:?}", report.unchecked), |finding| normal(&finding.fault.to_string()))
}

/// Returns the first findings of a report.
pub fn shown(report: &Report) -> String {
    report.findings.iter().take(4).map(|finding| format!("{finding}; ")).collect()
}

/// Replaces numbers and names, so that the messages of one class are the same.
pub fn normal(text: &str) -> String {
    let mut normal = String::new();
    let mut is_number = false;
    for (n, part) in text.split(['\'', '"']).enumerate() {
        if n % 2 == 1 && !part.contains(' ') {
            normal += "NAME";
            continue;
        }
        for char in part.chars().take(200) {
            let digit =
                char.is_ascii_digit() || is_number && (char.is_ascii_hexdigit() || char == 'x');
            if digit && !is_number {
                normal.push('N');
            } else if !digit {
                normal.push(char);
            }
            is_number = digit;
        }
    }
    normal.chars().take(90).collect()
}
