//! Names of RAID levels.

/// Returns mdadm's name for a level number.
pub fn level_name(level: i32) -> String {
    match level {
        -1 => "linear".into(),
        -4 => "multipath".into(),
        -5 => "faulty".into(),
        -2 => "container".into(),
        level => format!("raid{level}"),
    }
}
