//! A report as one HTML file: figures, plots, what each part brings, and what is assumed. Nothing is loaded from elsewhere.

use crate::compare::{Equivalence, Step};
use crate::experiment::{Outcome, Results};
use crate::metrics::Metrics;
use crate::plot::{Bar, bars, colour};
use crate::scenario::Scenario;
use std::fmt::Write;

pub(crate) const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;max-width:64em;margin:2em auto;padding:0 1em;color:#1f2933}\
table{border-collapse:collapse;margin:1em 0}td,th{padding:.2em .7em;text-align:right;border-bottom:1px solid #e4e7eb}\
td:first-child,th:first-child{text-align:left}svg{width:100%;margin:1em 0}.title{font-weight:600}.group{text-anchor:middle}\
.most{font-size:12px;fill:#7b8794}.key{display:inline-block;width:.8em;height:.8em;margin:0 .3em 0 1em}";

type Figure = (&'static str, &'static str, fn(&Metrics) -> f64);

const PLOTS: [Figure; 6] = [
    ("Mean completion time", "h", |metrics| metrics.jct_mean_s / 3600.0),
    ("Completion time, 95th percentile", "h", |metrics| {
        metrics.jct_p95_s / 3600.0
    }),
    ("Mean wait", "h", |metrics| metrics.wait_mean_s / 3600.0),
    ("Mean completion time of the widest jobs", "h", |metrics| {
        metrics.by_width.last().map_or(0.0, |width| width.jct_mean_s) / 3600.0
    }),
    ("Energy", "MWh", |metrics| metrics.energy_kwh / 1000.0),
    ("Stranded", "GPU-h", |metrics| metrics.stranded_gpu_h),
];

/// The report of a run of several policies.
#[must_use]
pub fn report(
    trace: &str,
    scenario: &Scenario,
    results: &Results,
    steps: &[Step],
    equivalence: &[Equivalence],
    synthetic: &[String],
) -> String {
    let mut series: Vec<&str> = Vec::new();
    for outcome in &results.policies {
        if !series.contains(&outcome.policy) {
            series.push(outcome.policy);
        }
    }
    let mut html = format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>Replay of {0}</title><style>{STYLE}</style>\
<h1>Replay of {0}</h1><p>Scenario {1}: {2}.</p>",
        escaped(trace),
        escaped(&scenario.name),
        escaped(&scenario.description)
    );
    html.push_str(&keys(&series));
    for (title, unit, figure) in PLOTS {
        let of = |outcome: &Outcome| Bar {
            group: format!("load {}, {}", outcome.load, outcome.runtimes),
            series: outcome.policy,
            value: figure(&outcome.metrics),
        };
        let all: Vec<Bar<'_>> = results.policies.iter().map(of).collect();
        html.push_str(&bars(title, unit, &series, &all));
    }
    figures(&mut html, results);
    widths(&mut html, results);
    decomposition(&mut html, steps);
    equal(&mut html, equivalence);
    html.push_str("<h2>What is assumed</h2><ul>");
    for label in synthetic {
        let _ = write!(html, "<li>{}</li>", escaped(label));
    }
    for (key, source) in &scenario.source {
        let _ = write!(html, "<li>{}: {}</li>", escaped(key), escaped(source));
    }
    for left in &results.left_out {
        let _ = write!(
            html,
            "<li>{} was left out {}</li>",
            left.policy,
            escaped(&left.why)
        );
    }
    html.push_str("</ul></html>\n");
    html
}

/// Which colour is whose.
pub(crate) fn keys(series: &[&str]) -> String {
    let key = |(place, name): (usize, &&str)| {
        let colour = colour(place);
        format!("<span class=\"key\" style=\"background:{colour}\"></span>{name}")
    };
    let keys: String = series.iter().enumerate().map(key).collect();
    format!("<p>{keys}</p>\n")
}

fn figures(html: &mut String, results: &Results) {
    html.push_str(
        "<h2>Figures</h2><table><tr><th>policy<th>load<th>run times<th>GPUs<th>JCT mean h<th>p95<th>p99<th>wait mean h<th>p95\
<th>used<th>stranded GPU-h<th>attaches a job<th>MWh<th>widest JCT h<th>µs a decision<th>p99</tr>\n",
    );
    for outcome in &results.policies {
        let metrics = &outcome.metrics;
        let hours = |seconds: f64| format!("{:.2}", seconds / 3600.0);
        let _ = writeln!(
            html,
            "<tr><td>{}<td>{}<td>{}<td>{}<td>{}<td>{}<td>{}<td>{}<td>{}<td>{:.1} %<td>{:.0}<td>{:.2}<td>{:.1}<td>{}\
             <td>{:.1}<td>{:.1}</tr>",
            outcome.policy,
            outcome.load,
            outcome.runtimes,
            outcome.gpus,
            hours(metrics.jct_mean_s),
            hours(metrics.jct_p95_s),
            hours(metrics.jct_p99_s),
            hours(metrics.wait_mean_s),
            hours(metrics.wait_p95_s),
            100.0 * metrics.utilization,
            metrics.stranded_gpu_h,
            metrics.attaches_per_job,
            metrics.energy_kwh / 1000.0,
            hours(metrics.by_width.last().map_or(0.0, |width| width.jct_mean_s)),
            outcome.decision.mean_us,
            outcome.decision.p99_us,
        );
    }
    html.push_str("</table>\n");
}

/// Completion times by width: a mean over all hides who starves.
fn widths(html: &mut String, results: &Results) {
    html.push_str(
        "<h2>By width</h2><table><tr><th>policy<th>load<th>run times<th>GPUs a job<th>jobs<th>JCT mean h<th>p95<th>p99\
<th>wait mean h<th>p95</tr>\n",
    );
    for outcome in &results.policies {
        for width in &outcome.metrics.by_width {
            let hours = |seconds: f64| format!("{:.2}", seconds / 3600.0);
            let _ = writeln!(
                html,
                "<tr><td>{}<td>{}<td>{}<td>{}<td>{}<td>{}<td>{}<td>{}<td>{}<td>{}</tr>",
                outcome.policy,
                outcome.load,
                outcome.runtimes,
                width.gpus,
                width.jobs,
                hours(width.jct_mean_s),
                hours(width.jct_p95_s),
                hours(width.jct_p99_s),
                hours(width.wait_mean_s),
                hours(width.wait_p95_s),
            );
        }
    }
    html.push_str("</table>\n");
}

/// How many GPUs give the same.
fn equal(html: &mut String, equivalence: &[Equivalence]) {
    if equivalence.is_empty() {
        return;
    }
    html.push_str(
        "<h2>As fast in the mean</h2><table><tr><th>policy<th>needs GPUs<th>as fast as<th>with GPUs<th>load<th>run times</tr>\n",
    );
    for one in equivalence {
        let gpus = one
            .gpus
            .map_or_else(|| "more than twice".to_owned(), |gpus| gpus.to_string());
        let _ = writeln!(
            html,
            "<tr><td>{}<td>{gpus}<td>{}<td>{}<td>{}<td>{}</tr>",
            one.policy, one.reference, one.reference_gpus, one.load, one.runtimes
        );
    }
    html.push_str("</table>\n");
}

fn decomposition(html: &mut String, steps: &[Step]) {
    if steps.is_empty() {
        return;
    }
    html.push_str(
        "<h2>What each part brings</h2><table><tr><th>part<th>from<th>to<th>load<th>run times<th>JCT mean<th>JCT p95<th>wait mean\
<th>widest JCT<th>energy</tr>\n",
    );
    for step in steps {
        let change = |share: f64| format!("{:+.1} %", 100.0 * share);
        let _ = writeln!(
            html,
            "<tr><td>{}<td>{}<td>{}<td>{}<td>{}<td>{}<td>{}<td>{}<td>{}<td>{}</tr>",
            step.what,
            step.from,
            step.to,
            step.load,
            step.runtimes,
            change(step.jct_mean),
            change(step.jct_p95),
            change(step.wait_mean),
            change(step.widest_jct_mean),
            change(step.energy),
        );
    }
    html.push_str("</table>\n");
}

pub(crate) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}
