//! Runs a *model*, a test of concurrent code, under many schedules of its threads.

/// Runs `model` under `schedules` schedules of each kind; the environment variable
/// `LANEFS_SCHEDULES` overrides this number. One kind of schedule chooses each step at random,
/// which finds errors that happen when few steps of other threads come between two steps of a
/// thread. The other kind gives threads priorities that change at two or three points, which finds
/// errors that happen when many steps come between.
pub(crate) fn explore(schedules: usize, model: impl Fn() + Clone + Send + Sync + 'static) {
    let given = std::env::var("LANEFS_SCHEDULES").ok().and_then(|text| text.parse().ok());
    let schedules = given.unwrap_or(schedules);
    shuttle::check_random(model.clone(), schedules);
    for changes in [2, 3] {
        shuttle::check_pct(model.clone(), schedules, changes);
    }
}
