//! Signed URLs by which an endpoint fetches the event behind a thin envelope.

use std::fmt;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use railpost_dispatch::ThinUrl;
use railpost_engine::{Span, Timestamp};
use railpost_store::{MasterKey, Parcel, Source};
use railpost_wire::{EndpointId, EventId, TenantId};

/// Makes and checks such URLs. The signature binds tenant, endpoint, event and expiry.
#[derive(Clone)]
pub struct ThinLinks {
    master_key: MasterKey,
    base_url: Arc<str>,
    ttl: Span,
    source: Arc<dyn Source>,
}

/// Why a link opens nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BadLink {
    Forged,
    Expired,
}

impl ThinLinks {
    /// Links to the server at `base_url` that open their event for as long as `ttl`.
    pub fn new(master_key: MasterKey, base_url: &str, ttl: Span, source: Arc<dyn Source>) -> Self {
        Self { master_key, base_url: base_url.trim_end_matches('/').into(), ttl, source }
    }

    /// Whether a link with these parts is ours and still good.
    pub(crate) fn check(
        &self,
        (tenant, endpoint, event): (&TenantId, EndpointId, &EventId),
        expires: u64,
        signature: &str,
        now: Timestamp,
    ) -> Result<(), BadLink> {
        let signed = text(tenant, endpoint, event, expires);
        let tag = URL_SAFE_NO_PAD.decode(signature).map_err(|_| BadLink::Forged)?;
        if !self.master_key.verify_link(signed.as_bytes(), &tag, now) {
            return Err(BadLink::Forged);
        }
        if now.as_millis() / 1000 >= expires { Err(BadLink::Expired) } else { Ok(()) }
    }

    fn url(&self, tenant: &TenantId, endpoint: EndpointId, event: &EventId) -> String {
        let expires = (self.source.now() + self.ttl).as_millis() / 1000;
        let tag = self.master_key.sign_link(text(tenant, endpoint, event, expires).as_bytes());
        let signature = URL_SAFE_NO_PAD.encode(tag);
        let base = &self.base_url;
        format!(
            "{base}/v1/thin/{tenant}/{endpoint}/{event}?expires={expires}&signature={signature}"
        )
    }
}

impl ThinUrl for ThinLinks {
    fn thin_url(&self, parcel: &Parcel) -> String {
        self.url(&parcel.tenant, parcel.endpoint, &parcel.event.id)
    }
}

impl fmt::Debug for ThinLinks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ThinLinks").field("base_url", &self.base_url).finish_non_exhaustive()
    }
}

/// What is signed. None of the parts may hold a space.
fn text(tenant: &TenantId, endpoint: EndpointId, event: &EventId, expires: u64) -> String {
    format!("{tenant} {endpoint} {event} {expires}")
}
