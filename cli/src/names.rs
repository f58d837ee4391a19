//! Names that somebody mistyped: what they may have meant, from what the manager knows.

use crate::api_client::Api;
use crate::exit_code::ExitCode;
use crate::failure::Failure;
use poolwright_model::nearest::{did_you_mean, nearest};
use serde_json::Value;

/// A name that was asked for, of this kind: the path of its list under `/api/v1`.
pub type Asked<'a> = (&'static str, &'a str);

/// Where a name was not found: says which names are like it, and which command lists them all.
pub async fn suggest(api: &Api, failure: Failure, asked: &[Asked<'_>]) -> Failure {
    if failure.code != ExitCode::NotFound {
        return failure;
    }
    for (path, wanted) in asked {
        // The error stands; a hint is a courtesy.
        let Ok(listed) = api.get::<Vec<Value>>(&[path]).await else {
            continue;
        };
        let known: Vec<&str> = listed.iter().filter_map(id).collect();
        if !known.contains(wanted) {
            let all = format!("`poolwright get {}` lists what there is", noun(path));
            let question = did_you_mean(&nearest(wanted, known));
            return failure.with_hint(question.map_or(all.clone(), |question| format!("{question} {all}")));
        }
    }
    failure
}

/// The name of something in a list: its own, or that of what was asked for.
fn id(value: &Value) -> Option<&str> {
    let found = value.get("id").or_else(|| value.pointer("/spec/id"))?;
    found.as_str()
}

/// What the command line calls a list.
fn noun(path: &str) -> &str {
    match path {
        "operations" => "ops",
        noun => noun,
    }
}
