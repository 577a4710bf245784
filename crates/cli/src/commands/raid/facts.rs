//! The fields of a superblock, as text and JSON.

use crate::cli::{Shown, printable, show_time};
use lanefs::Time;
use lanefs_ondisk::md::{Recovery, Role, SECTOR, bitmap, level_name};
use lanefs_raid5::{Candidate, Layout};
use serde_json::{Value, json};
use std::io::{self, Write};
use std::path::Path;

/// Returns all metadata that the member `path` stores. Sizes and offsets are in bytes.
pub fn of_member(path: &Path, candidate: &Candidate) -> Value {
    let superblock = &candidate.superblock;
    let data = superblock.data();
    let chunk = u64::from(superblock.chunk()) * SECTOR;
    let size = superblock.size().saturating_mul(SECTOR);
    let members = u64::from(superblock.members());
    let refused = superblock.support().err().map(|unsupported| unsupported.to_string());
    let layout = match (superblock.level(), Layout::from_md(superblock.layout())) {
        (5, Some(layout)) => json!(layout.name()),
        _ => json!(superblock.layout()),
    };
    let recovered = match superblock.recovery() {
        Recovery::InSync => Value::Null,
        Recovery::Below(sector) => json!(sector.saturating_mul(SECTOR)),
    };
    let area = |area: Option<lanefs_ondisk::md::Area>| {
        area.map(|area| json!({ "offset": area.offset, "bytes": area.len }))
    };
    json!({
        "member": path.display().to_string(),
        "array_uuid": superblock.set().to_string(),
        "array_name": superblock.name(),
        "device_uuid": superblock.device().to_string(),
        "device_number": superblock.number(),
        "role": role(superblock.role()),
        "roles": superblock.roles().into_iter().map(role).collect::<Value>(),
        "state": if superblock.resync_from().is_none() { "clean" } else { "active" },
        "parity_in_doubt_from": superblock.resync_from().map(|s| s.saturating_mul(SECTOR)),
        "rebuilt_below": recovered,
        "events": superblock.events(),
        "created": superblock.created(),
        "updated": superblock.updated(),
        "level": level_name(superblock.level()),
        "layout": layout,
        "chunk": chunk,
        "members": members,
        "used_size": size,
        "array_size": size.saturating_mul(members.saturating_sub(1)),
        "data": { "offset": data.offset, "bytes": data.len },
        "features": superblock.features().names(),
        "bitmap": of_bitmap(candidate),
        "partial_parity_log": area(superblock.ppl()),
        "bad_block_log": area(superblock.bad_block_log()),
        "bad_blocks": candidate.bad_blocks().map(|bad| bad.len()).ok(),
        "checksum": format!("{:08x}", superblock.sum()),
        "refused": refused,
    })
}

fn role(role: Role) -> Value {
    match role {
        Role::Active(slot) => json!(slot),
        Role::Spare => json!("spare"),
        Role::Faulty => json!("faulty"),
        Role::Journal => json!("journal"),
    }
}

fn of_bitmap(candidate: &Candidate) -> Value {
    let Some(area) = candidate.superblock.bitmap(candidate.device.len()) else {
        return Value::Null;
    };
    let expected = bitmap::Expected {
        set: candidate.superblock.set(),
        sync_size: candidate.superblock.size(),
        space: area.len,
    };
    let mut head = [0; bitmap::HEADER_SIZE];
    if let Err(error) = candidate.device.read_at(area.offset, &mut head) {
        return json!({ "error": error.to_string() });
    }
    let header = match bitmap::Header::decode(&head, &expected) {
        Ok(header) => header,
        Err(cause) => return json!({ "error": cause.to_string() }),
    };
    let mut bits = vec![0; header.bit_bytes() as usize];
    let read = candidate.device.read_at(area.offset + bitmap::HEADER_SIZE as u64, &mut bits);
    let set: u64 = bits.iter().map(|byte| u64::from(byte.count_ones())).sum();
    json!({
        "offset": area.offset,
        "chunk": header.chunk(),
        "bits": header.bits(),
        "set": read.is_ok().then_some(set),
        "events": header.events(),
        "events_cleared": header.events_cleared(),
        "stale": header.is_stale(),
    })
}

/// Prints the result of [`of_member`], one line per field.
pub fn print(out: &mut dyn Write, facts: &Value) -> io::Result<()> {
    for (name, value) in facts.as_object().into_iter().flatten() {
        let shown = match (name.as_str(), value) {
            (_, Value::Null) => continue,
            ("member", Value::String(path)) => {
                writeln!(out, "{}", printable(path))?;
                continue;
            }
            ("created" | "updated", Value::Number(secs)) => {
                let time = Time { secs: secs.as_i64().unwrap_or(0), nanos: 0 };
                show_time(time, Shown::Seconds)
            }
            (_, Value::String(text)) => printable(text),
            (_, Value::Array(list)) => {
                let words = list.iter().map(|v| v.as_str().map_or(v.to_string(), str::to_owned));
                words.collect::<Vec<_>>().join(", ")
            }
            (_, Value::Object(parts)) => {
                let parts = parts.iter().map(|(name, value)| format!("{name} {value}"));
                parts.collect::<Vec<_>>().join(", ")
            }
            (_, value) => value.to_string(),
        };
        writeln!(out, "  {:22}{shown}", name.replace('_', " "))?;
    }
    Ok(())
}
