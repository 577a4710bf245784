//! How schedules of a model are chosen.

/// Runs `model` on `schedules` schedules of each kind, or on as many as `LANEFS_SCHEDULES` says:
/// chosen step by step, which finds what needs few steps of others in between, and by priorities
/// that change at two or three places, which finds what needs one thread to stand still while
/// another does much.
pub(crate) fn explore(schedules: usize, model: impl Fn() + Clone + Send + Sync + 'static) {
    let given = std::env::var("LANEFS_SCHEDULES").ok().and_then(|text| text.parse().ok());
    let schedules = given.unwrap_or(schedules);
    shuttle::check_random(model.clone(), schedules);
    for changes in [2, 3] {
        shuttle::check_pct(model.clone(), schedules, changes);
    }
}
