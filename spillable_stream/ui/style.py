"""The page's looks: colours that read in light and in dark, and a frame around whatever has the focus."""

from __future__ import annotations

__all__ = ["CSS", "DISK", "MEMORY"]

MEMORY, DISK = "#2f74b5", "#d98c2b"
"""The colours of the tiers, as in a notebook."""

CSS = """
:root { --ink: #1c2430; --soft: #5a6573; --line: #dde2e8; --ground: #f4f6f8; --card: #ffffff; --track: #e6eaef;
  --memory: #2f74b5; --disk: #d98c2b; --kept: #8a8f98; --bad: #b3261e; --warn: #8a5a00; --good: #1b7340;
  --bad-ground: #fdecea; --warn-ground: #fff5df; --note-ground: #eef3f8; }
body.body--dark { --ink: #e6eaf0; --soft: #a3adba; --line: #313a46; --ground: #12161c; --card: #1b2129;
  --track: #2c343f; --memory: #5b9bd8; --disk: #e5a14c; --kept: #9aa1ab; --bad: #ff8a80; --warn: #ffcc66;
  --good: #6fd39b; --bad-ground: #3a1f1e; --warn-ground: #362c17; --note-ground: #222b36; }
body { background: var(--ground) !important; color: var(--ink); font-size: 15px; }
.nicegui-content { padding: 0 !important; gap: 0 !important; }
.s-skip { position: absolute; left: -100vw; }
.s-skip:focus { left: 1rem; top: .5rem; z-index: 9; background: var(--card);
  padding: .3rem .8rem; }
.s-bar { background: var(--card); border-bottom: 1px solid var(--line); width: 100%; padding: .5rem 1.5rem;
  align-items: center; gap: 1rem; }
.s-main { width: 100%; max-width: 1200px; margin: 0 auto; padding: 1.25rem 1.5rem 3rem; gap: 1.25rem; }
.s-card { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 1rem 1.25rem;
  width: 100%; gap: .5rem; }
.s-grid { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 340px), 1fr)); gap: 1.25rem;
  width: 100%; }
.s-grid.wide { grid-template-columns: repeat(auto-fit, minmax(min(100%, 460px), 1fr)); }
.s h1, h1.s { font-size: 1.25rem; font-weight: 650; line-height: 1.4; margin: 0; overflow-wrap: anywhere; }
h2.s { font-size: .95rem; font-weight: 650; line-height: 1.4; margin: 0; }
.s-soft { color: var(--soft); font-size: .85rem; }
.s-mono, .s code, .s pre { font-family: ui-monospace, "DejaVu Sans Mono", monospace; font-size: .82rem; }
.s-link { color: inherit !important; font-weight: 650; text-decoration: none; overflow-wrap: anywhere; }
.s-link:hover { text-decoration: underline; }
:focus-visible, .q-btn:focus-visible, .q-tab:focus-visible, .s-link:focus-visible {
  outline: 3px solid var(--memory) !important; outline-offset: 2px; border-radius: 4px; }
.s-badge { display: inline-block; border-radius: 999px; padding: 0 .6rem; font-size: .8rem; line-height: 1.5rem;
  background: var(--note-ground); color: var(--soft); white-space: nowrap; }
.s-badge.good { color: var(--good); } .s-badge.bad { background: var(--bad-ground); color: var(--bad); }
.s-badge.warn { background: var(--warn-ground); color: var(--warn); }
.s-tier { display: grid; grid-template-columns: 4.2rem 1fr 10.5rem; gap: .75rem; align-items: center;
  margin: .3rem 0; font-size: .85rem; font-variant-numeric: tabular-nums; }
.s-tier > :last-child { text-align: right; color: var(--soft); }
.s-meter { height: 12px; background: var(--track); border-radius: 6px; overflow: hidden; }
.s-meter > span { display: block; height: 100%; border-radius: 6px; transition: width .5s; }
.s-strip { display: flex; height: 20px; border-radius: 6px; overflow: hidden; background: var(--track); }
.s-strip > span { min-width: 1px; transition: flex-grow .5s; } .s-drain { grid-template-columns: 4.2rem 1fr;
  margin: .5rem 0; } .s-tier.s-drain > :last-child { text-align: left; } .s-drain > :first-child { line-height: 1.1; }
.s-word { white-space: nowrap; }
.memory { background: var(--memory); } .kept { background: var(--kept); } .delayed { background: var(--kept); }
.disk { background: repeating-linear-gradient(135deg, var(--disk) 0 5px,
  color-mix(in srgb, var(--disk) 78%, transparent) 5px 10px); }
.s-figures { display: flex; flex-wrap: wrap; gap: .4rem 1.75rem; margin: .25rem 0; }
.s-figures > div { min-width: 4.5rem; } .s-figures dt { color: var(--soft); font-size: .78rem; }
.s-figures dd { margin: 0; font-size: 1.15rem; font-weight: 600; font-variant-numeric: tabular-nums; }
.s-scroll { overflow-x: auto; width: 100%; }
.s-table { border-collapse: collapse; width: 100%; font-size: .85rem; font-variant-numeric: tabular-nums; }
.s-table caption { text-align: left; color: var(--soft); font-size: .8rem; padding-bottom: .3rem; }
.s-table th { text-align: left; font-weight: 600; color: var(--soft); }
.s-table th, .s-table td { border-bottom: 1px solid var(--line); padding: .35rem 1rem .35rem 0; vertical-align: top; }
.s-table .n { text-align: right; white-space: nowrap; }
.s-table td { overflow-wrap: anywhere; } .s-table td:not(.n) { min-width: 5.5rem; }
.s-table summary { cursor: pointer; }
.s-table pre { white-space: pre-wrap; background: var(--note-ground); border-radius: 6px; padding: .5rem .75rem;
  margin: .35rem 0; max-height: 20rem; overflow: auto; }
.s-advice { list-style: none; margin: 0; padding: 0; display: grid; gap: .5rem; }
.s-advice li { border-left: 4px solid var(--soft); background: var(--note-ground); border-radius: 0 6px 6px 0;
  padding: .45rem .8rem; font-size: .88rem; overflow-wrap: anywhere; }
.s-advice li.error { border-color: var(--bad); background: var(--bad-ground); }
.s-advice li.warning { border-color: var(--disk); background: var(--warn-ground); }
.s-advice b { display: block; font-weight: 600; }
.s-chart { width: 100%; height: 210px; }
.q-tab-panels { background: transparent !important; } .q-tab-panel { padding: 1.25rem 0 0 !important; }
.q-tab__label { text-transform: none; }
.s-legend { display: flex; gap: 1rem; font-size: .8rem; color: var(--soft); }
.s-legend i { display: inline-block; width: 12px; height: 12px; border-radius: 3px; margin-right: .35rem;
  vertical-align: -1px; }
@media (max-width: 480px) { .s-tier { grid-template-columns: 4.2rem 1fr; gap: .2rem .75rem; }
  .s-tier > .s-meter { grid-row: 2; grid-column: 1 / -1; } .s-legend { flex-wrap: wrap; gap: .2rem 1rem; }
  .s-table th, .s-table td { padding-right: .5rem; } }
@media (prefers-reduced-motion: reduce) { .s-meter > span, .s-strip > span { transition: none; } }
"""
