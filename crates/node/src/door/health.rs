//! What those ask who watch over a node; nobody need say who they are for it.

use super::Door;
use crate::metrics::TEXT_TYPE;
use godwit_store::door::Sent;
use hyper::{Response, header::CONTENT_TYPE};

/// Answers `/healthz`, `/readyz` and `/metrics`; `None`: the target is another.
pub(super) fn answer(door: &Door, target: &str) -> Option<Response<Sent>> {
    let (status, kind, text) = match target {
        // Whoever answers is alive.
        "/healthz" => (200, PLAIN, "ok\n".to_owned()),
        "/readyz" => match ready(door) {
            Ok(()) => (200, PLAIN, "ready\n".to_owned()),
            Err(why) => (503, PLAIN, format!("not ready: {why}\n")),
        },
        "/metrics" => (200, TEXT_TYPE, door.shared.metrics.to_text()),
        _ => return None,
    };
    let head = Response::builder()
        .status(status)
        .header(CONTENT_TYPE, kind);
    Some(head.body(Sent::whole(text)).expect("its headers are ours"))
}

fn ready(door: &Door) -> Result<(), String> {
    let shared = &door.shared;
    if shared.stop.is_draining() {
        return Err("the node is stopping".into());
    }
    let seen = shared.dir_of_node().look();
    seen.map_err(|error| {
        format!(
            "the export cannot be read: {}",
            crate::failure::failure(&error).said
        )
    })?;
    shared.trust.door().map_err(|error| error.to_string())?;
    Ok(())
}

const PLAIN: &str = "text/plain; charset=utf-8";
