//! Constants that were fitted on measured rows, each fitted again without the rows of a model and held against those.

use crate::cases::shared;
use poolwright_model::profile::Profiles;
use poolwright_sizing::batch;
use poolwright_sizing::constants::Constants;
use poolwright_sizing::overhead::{self, Card, Purpose, Software};
use poolwright_sizing::{Parallel, csv};
use std::collections::BTreeSet;

/// What a row says of a constant.
pub struct Said {
    pub model: String,
    pub constant: f64,
    /// Relative change of the row's measured figure by a unit of the constant.
    pub weight: f64,
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let half = values.len() / 2;
    f64::midpoint(values[half], values[(values.len() - 1) / 2])
}

/// A line for a constant, with its value and the errors of the rows' figures with it and with what the other models say;
/// and the means of both.
pub fn left_out(name: &str, value: f64, rows: &[Said]) -> (String, [f64; 2]) {
    let models: BTreeSet<&str> = rows.iter().map(|row| row.model.as_str()).collect();
    assert!(models.len() > 2, "{name}: {models:?}");
    let of = |without: Option<&str>| {
        let others = rows.iter().filter(|row| Some(row.model.as_str()) != without);
        median(others.map(|row| row.constant).collect())
    };
    let off = |row: &Said, value: f64| 100.0 * (value - row.constant).abs() * row.weight;
    let with: Vec<f64> = rows.iter().map(|row| off(row, value)).collect();
    let left_out: Vec<f64> = rows.iter().map(|row| off(row, of(Some(&row.model)))).collect();
    let mean = |errors: &[f64]| errors.iter().sum::<f64>() / errors.len() as f64;
    let worst = left_out.iter().copied().fold(0.0, f64::max);
    let line = format!(
        "{name:<34} {value:>8.4}; fitted {:>8.4} on {:>2} rows of {:>2} models; errors in %: {:>5.2}, left out {:>5.2}, at \
         most {worst:>5.1}",
        of(None),
        rows.len(),
        models.len(),
        mean(&with),
        mean(&left_out),
    );
    (line, [mean(&with), mean(&left_out)])
}

/// Constants of one GPU, on the shared rows if present.
#[test]
fn constants_of_pytorch_hold_for_models_that_they_were_not_fitted_on() {
    let Some(dir) = shared() else { return };
    let read = |name: &str| std::fs::read_to_string(dir.join("sizing/gpu").join(name)).unwrap();
    let (mut context, mut serving, mut training, mut share) = (vec![], vec![], vec![], vec![]);
    csv::read(&read("measured_h200.csv"), |row| {
        let number = |column: &str| row.get(column).map(|text| text.parse::<f64>().unwrap());
        let model = || row.get("model").unwrap().to_owned();
        let (Some(first), Some(outside), Some(process)) = (
            number("ctx_first_gib"),
            number("outside_gib"),
            number("nvml_delta_gib"),
        ) else {
            return;
        };
        let of_process = |constant: f64| Said {
            model: model(),
            constant,
            weight: 1.0 / process,
        };
        context.push(of_process(first));
        if row.get("task") != Some("infer") {
            training.push(of_process(outside - first));
            return;
        }
        serving.push(of_process(outside - first));
        let [weights, live, reserved] =
            ["model_gib", "live_gib", "reserved_gib"].map(|column| number(column).unwrap());
        share.push(Said {
            model: model(),
            constant: (reserved - live) / (live - weights),
            weight: (live - weights) / reserved,
        });
    })
    .unwrap();

    let constants = Constants::builtin();
    let replayed = constants
        .frameworks
        .named("pytorch")
        .unwrap()
        .replayed
        .as_ref()
        .unwrap();
    let cases = read("cases_h200.csv");
    let predicted = batch::size(&cases).unwrap();
    let (mut workspace, mut at) = (Vec::new(), 0);
    csv::read(&cases, |row| {
        let found = predicted[at].result.as_ref().unwrap().point.gib();
        at += 1;
        if row.get("metric") == Some("reserved") && row.get("task") != Some("infer") {
            let peak: f64 = row.get("peak_gib").unwrap().parse().unwrap();
            workspace.push(Said {
                model: row.get("model").unwrap().to_owned(),
                constant: peak - (found - replayed.workspace_gib),
                weight: 1.0 / peak,
            });
        }
    })
    .unwrap();

    let card = Card::of(Profiles::builtin().by_name("h200-sxm-141gb").unwrap());
    let held = |name: &str, purpose: Purpose| {
        let software = Software {
            name: "pytorch",
            version: None,
            cuda: None,
            purpose,
        };
        let terms = overhead::terms(card, &software, &Parallel::SINGLE);
        terms.iter().find(|term| term.name == name).unwrap().point.gib()
    };
    let beside = constants
        .serving
        .engine("pytorch")
        .unwrap()
        .reserved
        .as_ref()
        .unwrap();
    // Each with the mean error that it may have: without the smaller ones, it would be 0.7 to 3.5 %.
    let found = [
        ("context, GiB", held("context", Purpose::Training), &context, 0.2),
        (
            "kernels of serving, GiB",
            held("kernels", Purpose::Serving),
            &serving,
            0.2,
        ),
        (
            "kernels of training, GiB",
            held("kernels", Purpose::Training),
            &training,
            0.2,
        ),
        (
            "workspaces of cuBLAS, GiB",
            replayed.workspace_gib,
            &workspace,
            0.75,
        ),
        ("reserved share of other tensors", beside.share, &share, 5.0),
    ];
    for (name, value, rows, most) in found {
        let (line, errors) = left_out(name, value, rows);
        println!("{line}");
        assert!(errors.iter().all(|error| *error <= most), "{line}");
        let (without, [error, _]) = left_out(name, 0.0, rows);
        assert!(error > most, "it could not fail: {without}");
    }
}
