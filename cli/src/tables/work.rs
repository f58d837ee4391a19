//! What is made of the hardware: compositions, demands, schedules, operations, and the services that are
//! spoken to.

use super::{column, word};
use crate::output::human::span;
use crate::output::{Cell, Table, in_csv};
use jiff::Zoned;
use poolwright_executor::Operation;
use poolwright_planner::{Composition, Plan};
use poolwright_service::demand::DemandRecord;
use poolwright_service::endpoint::{Endpoint, Pins, Trust};
use poolwright_service::limits::Limits;
use poolwright_service::occurrence::Fate;
use poolwright_service::runner::ScheduleRun;
use poolwright_service::schedule::Schedule;
use poolwright_service::{
    Check, CheckResult, Drift, DueOpening, LimitsStatus, Pause, ScheduleStatus, SkippedStep,
};

pub fn compositions(compositions: &[Composition]) -> Table {
    let mut table = Table::new([
        column("COMPOSITION").named("id"),
        column("DEMAND"),
        column("HOST"),
        column("GPUS"),
        in_csv("gpu_ids"),
        column("PART").for_people(),
        in_csv("part"),
        in_csv("parts"),
        column("FOR").named("label"),
    ]);
    for composition in compositions {
        table.row([
            Cell::text(&composition.id),
            Cell::maybe(composition.demand.as_ref()),
            Cell::text(&composition.host),
            Cell::text(composition.gpu_count()),
            Cell::list(composition.gpus()),
            Cell::text(format!("{} of {}", composition.part, composition.parts)),
            Cell::text(composition.part),
            Cell::text(composition.parts),
            Cell::text(&composition.label),
        ]);
    }
    table
}

/// The steps of a plan, and which of them will be skipped, as far as that is known.
pub fn plan_steps(plan: &Plan, skipped: Option<&[SkippedStep]>) -> Table {
    let columns = [
        "STEP",
        "AFTER",
        "VERB",
        "GPUS",
        "HOST",
        "HOST PORT",
        "COMPOSITION",
    ];
    let mut table = Table::new(columns.into_iter().chain(skipped.map(|_| "SKIPPED")));
    for step in &plan.steps {
        let reason = skipped.map(|skipped| {
            let of_it = skipped.iter().find(|skipped| skipped.index == step.index);
            Cell::maybe(of_it.map(|skipped| &skipped.reason))
        });
        let cells = [
            Cell::text(step.index),
            Cell::list(&step.after),
            Cell::text(step.verb),
            Cell::list(&step.target.gpus),
            Cell::text(&step.target.host),
            Cell::text(&step.target.host_port),
            Cell::maybe(step.composition.as_ref()),
        ];
        table.row(cells.into_iter().chain(reason));
    }
    table
}

pub fn demands(demands: &[DemandRecord]) -> Table {
    let mut table = Table::new([
        column("DEMAND").named("id"),
        column("TENANT").if_room(),
        column("PRIORITY").goes(2),
        column("WANTS").named("label"),
        column("BEST SET").for_people(),
        in_csv("best_count"),
        in_csv("best_kind"),
        in_csv("best_min_memory_bytes"),
        column("PHASES").if_any(),
        column("STARTS").if_any(),
        column("SCHEDULE").if_any(),
        column("JOB").if_any(),
        column("SINCE").named("created").if_room(),
    ]);
    for record in demands {
        let best = record.demand.need.best();
        table.row([
            Cell::text(&record.spec.id),
            Cell::text(&record.spec.tenant),
            Cell::text(record.spec.priority),
            Cell::text(&record.demand.need.label),
            Cell::maybe(best),
            Cell::maybe(best.map(|set| set.count)),
            Cell::maybe(best.and_then(|set| set.kind.as_ref())),
            Cell::bytes(best.map(|set| set.min_memory_per_gpu)),
            Cell::list(
                record
                    .course
                    .iter()
                    .flat_map(|course| &course.windows)
                    .map(|window| &window.phase),
            ),
            Cell::at(record.course.as_ref().map(|course| course.starts)),
            Cell::maybe(record.schedule.as_ref()),
            Cell::maybe(record.job.as_ref().map(|job| match (job.waits(), job.runs()) {
                (true, _) => "waits",
                (false, true) => "runs",
                (false, false) => "over",
            })),
            Cell::at(record.demand.created),
        ]);
    }
    table
}

pub fn schedules(schedules: &[ScheduleStatus]) -> Table {
    let mut table = Table::new([
        column("SCHEDULE").named("id"),
        column("OPENS").if_any(),
        column("CLOSES").if_any(),
        column("WEEKLY").if_any(),
        column("ZONE").goes(5),
        column("NOW"),
        column("NEXT CHANGE"),
        column("DEMANDS").if_any(),
        column("SUSPENDS").if_any().goes(4),
        column("RETURN TAKES").named("returns").if_any().goes(2),
        column("GUARANTEE").named("reclaim_s").if_any().goes(1),
        column("RETURN").named("return").if_any().goes(3),
        column("TROUBLE").if_any(),
    ]);
    for status in schedules {
        let Schedule { spec, .. } = &status.schedule;
        let now = match (spec.paused, status.open, &status.fate) {
            (true, ..) => "paused".to_owned(),
            (false, true, _) => match status.schedule.lend.as_ref() {
                Some(lend) if lend.over.is_none() && lend.noticed.is_some() => "open, called back".to_owned(),
                _ => "open".to_owned(),
            },
            (false, false, Some(Fate::Blocked { by })) => format!("blocked: what {by} lent is not back"),
            (false, false, Some(Fate::Waits { r#for })) => format!("waits for {}", r#for),
            (false, false, Some(Fate::LeftOut { because })) => format!("left out: {because}"),
            (false, false, _) => "closed".to_owned(),
        };
        let given = |text: &str| match text {
            "" => Cell::nothing(),
            text => Cell::text(text),
        };
        table.row([
            Cell::text(&spec.id),
            given(&spec.window.opens),
            given(&spec.window.closes),
            Cell::list(&spec.window.weekly),
            Cell::text(&spec.window.zone),
            Cell::text(now),
            Cell::at(status.next_change),
            Cell::list(spec.demands.iter().map(|demand| &demand.id)),
            Cell::list(&spec.suspends),
            Cell::maybe(status.returns.as_ref()),
            Cell::maybe(spec.reclaim_s.map(|reclaim_s| format!("{reclaim_s} s"))),
            Cell::maybe(status.return_told()),
            Cell::maybe(status.trouble.as_ref()),
        ]);
    }
    table
}

/// The moments in the windows' own zones, for people; for programs they are instants.
pub fn openings(openings: &[DueOpening]) -> Table {
    let mut table = Table::new([
        column("SCHEDULE").if_any(),
        column("OPENS"),
        column("CLOSES"),
        column("ZONE"),
        column("LASTS").for_people(),
        column("ATTACHED FROM").if_any(),
        column("LEAD").if_any(),
    ]);
    let there = |at: &Zoned| at.strftime("%a %Y-%m-%d %H:%M %:z").to_string();
    for opening in openings {
        let lasts = opening.closes.map(|closes| {
            let minutes = closes.duration_since(opening.opens).as_mins();
            match (minutes / 60, minutes % 60) {
                (hours, 0) => format!("{hours} h"),
                (0, minutes) => format!("{minutes} min"),
                (hours, minutes) => format!("{hours} h {minutes} min"),
            }
        });
        table.row([
            Cell::maybe(opening.schedule.as_ref()),
            Cell::both(there(&opening.opens_there), opening.opens),
            match (&opening.closes_there, opening.closes) {
                (Some(at), Some(closes)) => Cell::both(there(at), closes),
                _ => Cell::nothing(),
            },
            Cell::maybe(opening.opens_there.time_zone().iana_name()),
            Cell::maybe(lasts),
            opening.attached_from.map_or_else(Cell::nothing, Cell::at),
            Cell::maybe(opening.lead.as_ref()),
        ]);
    }
    table
}

pub fn schedule_runs(runs: &[ScheduleRun]) -> Table {
    let mut table = Table::new([
        column("AT"),
        column("OPEN"),
        column("OPERATION").goes(1),
        column("WELL"),
        column("OUTCOME"),
    ]);
    for run in runs {
        table.row([
            Cell::at(run.at),
            Cell::list(&run.open),
            Cell::maybe(run.operation.as_ref()),
            Cell::yes(run.succeeded),
            Cell::text(&run.outcome),
        ]);
    }
    table
}

pub fn operations(operations: &[Operation]) -> Table {
    let mut table = Table::new([
        column("OPERATION").named("id"),
        column("KIND"),
        column("STATE"),
        column("STEPS").for_people().if_room(),
        in_csv("steps_done"),
        in_csv("steps"),
        column("BY").if_room(),
        column("CREATED").if_room(),
        column("TOOK").for_people().goes(2),
        in_csv("ended"),
        in_csv("in_state_since"),
        column("WAITS FOR").for_people().if_any(),
        column("ALARM").if_any(),
        column("LEFT OUT").if_any(),
        column("ERROR").if_any(),
    ]);
    for operation in operations {
        let steps = operation.steps.iter();
        let through = steps.filter(|record| record.state.is_through()).count();
        let took = operation.ended.map(|ended| span(operation.created, ended));
        table.row([
            Cell::text(&operation.id),
            word(&operation.kind),
            Cell::text(operation.state),
            Cell::text(format!("{through}/{}", operation.steps.len())),
            Cell::text(through),
            Cell::text(operation.steps.len()),
            Cell::text(&operation.by),
            Cell::at(operation.created),
            Cell::maybe(took),
            Cell::at(operation.ended),
            Cell::at(operation.since),
            Cell::maybe(waits(operation)),
            Cell::maybe(operation.alarm.as_ref().map(|alarm| alarm.severity)),
            Cell::list(operation.left_out.iter().flat_map(|left| &left.gpus)),
            Cell::maybe(operation.error()),
        ]);
    }
    table
}

/// What holds it up: one reason, and how many more there are.
fn waits(operation: &Operation) -> Option<String> {
    let mut waits = operation.waits();
    waits.sort();
    waits.dedup();
    let more = waits
        .len()
        .checked_sub(2)
        .map(|more| format!("; and {} more", more + 1));
    let first = waits.into_iter().next()?;
    Some(format!("{first}{}", more.unwrap_or_default()))
}

pub fn pauses(pauses: &[Pause]) -> Table {
    let mut table = Table::new([
        column("PAUSED").named("what"),
        column("BY"),
        column("SINCE"),
        column("REASON").if_any(),
    ]);
    for pause in pauses {
        let reason = Some(&pause.reason).filter(|reason| !reason.is_empty());
        table.row([
            Cell::text(&pause.what),
            Cell::text(&pause.by),
            Cell::at(pause.since),
            Cell::maybe(reason),
        ]);
    }
    table
}

/// What may happen by itself, beside what did.
pub fn limits(status: &LimitsStatus) -> Table {
    let mut table = Table::new([
        column("LIMIT"),
        column("ALLOWED"),
        column("SO FAR").named("so_far"),
        column("DEFAULT"),
        column("OF"),
    ]);
    let (now, usual, most) = (&status.limits, Limits::default(), &status.moved_most);
    let rows = [
        ("per-plan", now.per_plan, None, usual.per_plan, "GPUs of one plan"),
        (
            "per-hour",
            now.per_hour,
            Some(status.moved),
            usual.per_hour,
            "moves of all GPUs",
        ),
        (
            "per-host",
            now.per_host,
            Some(most.host),
            usual.per_host,
            "moves to or from one host",
        ),
        (
            "per-tenant",
            now.per_tenant,
            Some(most.tenant),
            usual.per_tenant,
            "moves of one tenant's GPUs",
        ),
        (
            "per-gpu",
            now.per_gpu,
            Some(most.gpu),
            usual.per_gpu,
            "moves of one GPU",
        ),
        (
            "hold",
            now.hold_s,
            None,
            usual.hold_s,
            "seconds that a moved GPU stays",
        ),
        (
            "failures",
            now.failures,
            Some(status.failed),
            usual.failures,
            "operations in a row that ended badly",
        ),
        (
            "vanished",
            now.vanished,
            None,
            usual.vanished,
            "percent of an endpoint's GPUs, in one look",
        ),
        (
            "slip",
            now.slip_s,
            None,
            usual.slip_s,
            "seconds by which a reserved job may start late",
        ),
    ];
    for (name, allowed, moved, usual, of) in rows {
        table.row([
            Cell::text(name),
            Cell::text(allowed),
            Cell::maybe(moved.as_ref()),
            Cell::text(usual),
            Cell::text(of),
        ]);
    }
    table
}

/// The steps of one operation.
pub fn steps(operation: &Operation) -> Table {
    let mut table = Table::new([
        column("STEP"),
        column("WHAT"),
        column("STATE"),
        column("TRIES"),
        column("SEEN").if_any(),
        column("ERROR").if_any(),
    ]);
    for record in &operation.steps {
        table.row([
            Cell::text(record.step.index),
            Cell::text(&record.step),
            Cell::text(record.state),
            Cell::text(record.attempts),
            Cell::maybe(record.evidence.as_ref()),
            Cell::maybe(record.error.as_ref().or(record.waiting_for.as_ref())),
        ]);
    }
    table
}

pub fn endpoints(endpoints: &[Endpoint]) -> Table {
    let mut table = Table::new([
        column("ENDPOINT").named("id"),
        column("URL"),
        column("ACCOUNT").goes(2),
        column("BELIEVES").if_room(),
        column("DRIVER"),
        in_csv("vendor"),
        in_csv("product"),
        in_csv("firmware"),
        column("STANDING"),
        column("REPAIR"),
        column("OBSERVED").named("observed_at").if_room(),
        column("NOTE").named("stale").if_any(),
        column("ADDED").if_room(),
    ]);
    for endpoint in endpoints {
        let (spec, service) = (&endpoint.spec, endpoint.service.as_ref());
        let driver = match service {
            Some(service) => Cell::both(service, service.driver),
            None => Cell::nothing(),
        };
        let believes = match &spec.trust {
            Trust::System => Cell::both("this machine's authorities", "system"),
            Trust::CaPem(_) => Cell::both("the authority that was given", "ca given"),
            Trust::CaFile(file) => Cell::both(format!("the authority in {file}"), format!("ca {file}")),
            Trust::Pinned(Pins::One(pin)) => {
                Cell::both(format!("the certificate {pin}"), format!("pin {pin}"))
            }
            Trust::Pinned(Pins::Two([one, next])) => {
                let both = format!("the certificate {one}, or {next}");
                Cell::both(both, format!("pin {one} or {next}"))
            }
            Trust::InsecureAnyone => Cell::both("anybody (insecure)", "anybody"),
        };
        table.row([
            Cell::text(&spec.id),
            Cell::text(&spec.url),
            Cell::maybe(spec.username.as_ref()),
            believes,
            driver,
            Cell::maybe(service.and_then(|service| service.vendor.as_ref())),
            Cell::maybe(service.and_then(|service| service.product.as_ref())),
            Cell::maybe(service.and_then(|service| service.firmware.as_ref())),
            word(&endpoint.standing),
            word(&endpoint.repair),
            match endpoint.observed_at {
                Some(at) => Cell::at(at),
                None => Cell::nothing(),
            },
            match endpoint.stale {
                true => Cell::both("stale", "true"),
                false => Cell::nothing(),
            },
            Cell::at(endpoint.added),
        ]);
    }
    table
}

/// Wanted against found.
pub fn drifts(drifts: &[Drift]) -> Table {
    let mut table = Table::new([
        column("GPU"),
        column("DRIFT").named("kind"),
        column("WANTED"),
        column("FOUND"),
        column("COMPOSITION").if_any(),
        column("DEMAND").if_any(),
        column("DETAIL").if_any(),
    ]);
    for drift in drifts {
        table.row([
            Cell::text(&drift.gpu),
            Cell::text(drift.kind),
            Cell::maybe(drift.wanted.as_ref()),
            Cell::maybe(drift.found.as_ref()),
            Cell::maybe(drift.composition.as_ref()),
            Cell::maybe(drift.demand.as_ref()),
            Cell::maybe(drift.detail.as_ref()),
        ]);
    }
    table
}

/// The same where nothing says how wide a line may be: a long text makes its own line long, and no other.
pub fn checks_in_lines(checks: &[Check]) -> String {
    let wide = checks.iter().map(|check| check.name.chars().count()).max();
    let wide = wide.unwrap_or_default();
    let mut text = String::new();
    for check in checks {
        let result = match check.result {
            CheckResult::Ok => "ok",
            CheckResult::Warning => "warning",
            CheckResult::Problem => "PROBLEM",
        };
        text.push_str(&format!("{:wide$}  {result:7}  {}\n", check.name, check.message));
        if let Some(hint) = &check.hint {
            text.push_str(&format!("{:wide$}  {:7}  do next: {hint}\n", "", ""));
        }
    }
    text
}

pub fn checks(checks: &[Check]) -> Table {
    let mut table = Table::new([
        column("CHECK"),
        column("RESULT"),
        column("WHAT"),
        column("DO NEXT").if_any(),
    ]);
    for check in checks {
        let result = match check.result {
            CheckResult::Ok => Cell::text("ok"),
            CheckResult::Warning => Cell::text("warning"),
            CheckResult::Problem => Cell::both("PROBLEM", "problem"),
        };
        table.row([
            Cell::text(&check.name),
            result,
            Cell::text(&check.message),
            Cell::maybe(check.hint.as_ref()),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schedule_that_the_pool_does_not_follow_says_why() {
        let status: ScheduleStatus = serde_json::from_value(serde_json::json!({
            "id": "nights",
            "window": { "opens": "0 20 * * *", "closes": "30 7 * * *", "zone": "Europe/Berlin" },
            "demands": [],
            "suspends": [],
            "paused": false,
            "created": "2026-03-02T12:00:00Z",
            "open": true,
            "next_change": null,
            "next_openings": [],
            "trouble": {
                "since": "2026-03-02T20:00:02Z",
                "tries": 3,
                "last_try": "2026-03-02T20:00:14Z",
                "again_after_s": 16,
                "reason": "box-1 does not answer",
            },
        }))
        .unwrap();
        let shown = schedules(std::slice::from_ref(&status)).render(None);
        assert!(shown.contains("TROUBLE"), "{shown}");
        assert!(shown.contains("tried 3 times"), "{shown}");
        assert!(shown.contains("box-1 does not answer"), "{shown}");
        let healthy = ScheduleStatus {
            trouble: None,
            ..status
        };
        assert!(!schedules(&[healthy]).render(None).contains("TROUBLE"));
    }
}
