//! `lanefs raid status`

use super::array::{ArrayArgument, Look, NothingMore};
use super::live;
use crate::cli::{Report, advised, human, printable};
use lanefs::device::Device;
use lanefs_ondisk::md::Role;
use lanefs_raid5::{OpenArray, Places, Standing};
use serde_json::{Value, json};
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

/// Shows the state of an array and its members, mounted or not; writes nothing
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit codes: 0 success; 1 the array cannot be used, a member has unreadable blocks, or a rebuild or
resync in the background of a mount failed; 2 wrong usage.

Examples:
  lanefs raid status md:a.img,b.img,c.img
  lanefs raid status --json md:11111111:22222222:33333333:44444444,/srv/images")]
pub struct Arguments {
    #[command(flatten)]
    array: ArrayArgument,
    #[command(flatten)]
    nothing_more: NothingMore,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Runs `lanefs raid status`.
pub fn run(arguments: &Arguments) -> ExitCode {
    Report::run("raid status", |report| {
        let look = arguments.array.look()?;
        let facts = facts(&look);
        let mut out = io::stdout();
        report.printed(match arguments.json {
            true => writeln!(out, "{facts:#}"),
            false => print(&mut out, &look.array, &facts),
        });
        troubles(&facts).for_each(|trouble| report.fail(arguments.array.failure(trouble)));
        Ok(look.refused.map_or(Ok(()), Err)?)
    })
}

/// Returns what is wrong although the array can be used.
fn troubles(facts: &Value) -> impl Iterator<Item = String> {
    let bad = facts["bad_blocks"].as_array().into_iter().flatten();
    let bad = bad.map(|bad| {
        let name = printable(bad["name"].as_str().unwrap_or_default());
        let (places, bytes) = (&bad["places"], bad["bytes"].as_u64().unwrap_or(0));
        format!("{name}: {} in {places} places cannot be read (bad-block log)", human(bytes))
    });
    let unknown = facts["bad_blocks"].as_str().map(str::to_owned);
    let failed = facts["background"]["state"] == "failed";
    let text = printable(facts["background"]["text"].as_str().unwrap_or_default());
    let failed = failed.then(|| format!("the work in the background failed: {text}"));
    bad.chain(unknown).chain(failed).collect::<Vec<_>>().into_iter()
}

/// Returns the unreadable blocks of each member that has some, or why this is not known.
fn bad_blocks(array: &OpenArray) -> Value {
    let members = match array.bad_blocks() {
        Ok(members) => members.into_iter().filter(|(_, places)| !places.is_empty()),
        Err(error) => return json!(error.to_string()),
    };
    let member = |(name, places): (PathBuf, Places)| {
        let bytes: u64 = places.iter().map(|place| place.end.saturating_sub(place.start)).sum();
        json!({ "name": name.display().to_string(), "places": places.len(), "bytes": bytes })
    };
    members.map(member).collect()
}

fn facts(look: &Look) -> Value {
    let Look { array, in_use, mounted, refused } = look;
    let superblock = array.metadata().array();
    let status = array.array().status();
    let shape = array.array().geometry();
    let known = array.metadata().members();
    let recorded = array.metadata().recorded();
    let roles: Vec<Role> = (0..recorded.numbers()).map(|n| recorded.role_of(n)).collect();
    let member = |(slot, standing): (usize, &Standing)| {
        let name = known.iter().find(|known| known.slot == Some(slot));
        let name = name.map(|known| known.name.display().to_string());
        let (state, rebuilt) = match standing {
            // The member has failed if the superblocks of the other members say so. If the user
            // only left the member out of the list (`md:a,missing,c`), these superblocks still
            // give it the role of its slot.
            Standing::Missing
                if roles.contains(&Role::Faulty) && !roles.contains(&Role::Active(slot as u16)) =>
            {
                ("failed", Value::Null)
            }
            Standing::Missing => ("missing", Value::Null),
            Standing::InSync => ("in sync", Value::Null),
            Standing::Rebuilding { row } => ("rebuilding", json!(row * shape.chunk())),
        };
        json!({ "slot": slot, "name": name, "state": state, "rebuilt_below": rebuilt })
    };
    let members: Vec<Value> = status.members.iter().enumerate().map(member).collect();
    let spares = known.iter().filter(|known| known.slot.is_none());
    let spares: Vec<String> = spares.map(|known| known.name.display().to_string()).collect();
    let (background, work) = mounted.as_deref().and_then(live::work).unzip();
    let degraded = !array.array().degraded().is_empty();
    let out: Vec<String> = array.left_out().iter().map(|out| out.to_string()).collect();
    json!({
        "array_uuid": superblock.set().to_string(),
        "array_name": superblock.name(),
        "bytes": array.len(),
        "layout": shape.layout().name(),
        "chunk": shape.chunk(),
        "rows": shape.rows(),
        "state": if superblock.resync_from().is_none() { "clean" } else { "active" },
        "degraded": degraded,
        // If the array is in use, only the process that uses the array knows how many rows must be
        // resynchronised. If the array cannot be assembled, the number is unknown.
        "rows_to_resync": (in_use.is_none() && refused.is_none()).then_some(status.unsynced_rows),
        // While the array is in use, the log always has entries of writes under way.
        "log": array.log().filter(|_| in_use.is_none()).map(|log| {
            json!({ "entries": log.entries, "damaged": log.damaged })
        }),
        "bad_blocks": bad_blocks(array),
        "background": background,
        "work": work,
        "spares": spares,
        "events": superblock.events(),
        "members": members,
        "left_out": out,
        "in_use": in_use,
        "refused": refused.is_some(),
    })
}

fn print(out: &mut dyn Write, array: &OpenArray, facts: &Value) -> io::Result<()> {
    let text = |name: &str| facts.get(name).and_then(Value::as_str).unwrap_or_default();
    let state = match facts.get("degraded").and_then(Value::as_bool) {
        Some(true) => "degraded",
        _ => "whole",
    };
    writeln!(
        out,
        "{} ({}): {}, {}, chunks of {}, {} and {state}",
        printable(text("array_name")),
        text("array_uuid"),
        human(array.len()),
        text("layout"),
        human(array.array().geometry().chunk()),
        text("state"),
    )?;
    let total = array.array().geometry().member_len().max(1);
    for member in facts.get("members").and_then(Value::as_array).into_iter().flatten() {
        let slot = member.get("slot").and_then(Value::as_u64).unwrap_or(0);
        let name = member.get("name").and_then(Value::as_str).unwrap_or("-");
        let state = member.get("state").and_then(Value::as_str).unwrap_or_default();
        let rebuilt = member.get("rebuilt_below").and_then(Value::as_u64);
        let done = rebuilt.map(|done| format!(", {} % done", done.saturating_mul(100) / total));
        writeln!(out, "  {slot:3}  {}: {state}{}", printable(name), done.unwrap_or_default())?;
    }
    for left in facts.get("left_out").and_then(Value::as_array).into_iter().flatten() {
        writeln!(out, "  left out: {}", printable(&advised(left.as_str().unwrap_or_default())))?;
    }
    for spare in facts["spares"].as_array().into_iter().flatten() {
        writeln!(out, "   -   {}: spare", printable(spare.as_str().unwrap_or_default()))?;
    }
    if let Some(by) = facts.get("in_use").and_then(Value::as_str) {
        writeln!(out, "  {}", printable(by))?;
    }
    if let Some(log) = facts.get("log").filter(|log| !log.is_null()) {
        let (entries, damaged) = (&log["entries"], &log["damaged"]);
        writeln!(out, "  partial parity log: {entries} entries to be applied, {damaged} damaged")?;
    }
    for work in facts["work"].as_array().into_iter().flatten() {
        let (step, number) = (work["step"].as_str().unwrap_or("at work"), |name: &str| {
            work[name].as_u64().unwrap_or(0)
        });
        let percent = number("done").saturating_mul(100) / number("total").max(1);
        writeln!(out, "  {}, {percent} % done", printable(step))?;
    }
    match facts["background"]["state"].as_str() {
        Some("working") => writeln!(out, "  a rebuild or resync is under way")?,
        Some("stopped") => writeln!(out, "  a rebuild or resync was stopped")?,
        _ => {}
    }
    let rows = facts.get("rows_to_resync").and_then(Value::as_u64).unwrap_or(0);
    if rows > 0 {
        writeln!(out, "  parity of {rows} rows is to be computed again")?;
    }
    Ok(())
}
