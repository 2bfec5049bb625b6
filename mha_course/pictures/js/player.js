// A slider through steps, such as those of a training run, and a button that lets them play.

import { button, element, heed } from "./elements.js";

const PAUSE = 180; // milliseconds between two steps that play

/**
 * The choice `step` of a picture with these `steps`; `charts` over the same steps stand on the slider and are dragged.
 * `label` is the slider's name, `words` says a step, `pause` is the milliseconds between two steps that play.
 */
export function player(steps, { state, controls, choose, repaint }, charts = [], options = {}) {
  const last = steps.length - 1;
  const { label = "training step", pause = PAUSE, words = (step) => `${steps[step]} of ${steps[last]}` } = options;
  let timer;
  const write = (step) => (stop(), { step });
  const strip = controls({ step: { label, max: last, write, words } });
  const play = button("▶ play", () => timer ? stop() : start());
  const forward = () => state.step < last ? choose({ step: state.step + 1 }) : stop();
  function start() {
    timer = setInterval(forward, pause);
    choose({ step: state.step < last ? state.step + 1 : 0 });
  }
  const stop = () => (timer = clearInterval(timer), repaint());
  const paint = () => play.textContent = timer ? "❚❚ pause" : "▶ play";
  for (const chart of charts) heed(chart, (share) => choose(write(Math.round(share * last))));
  const node = element("div", { class: "player" }, play, strip, ...charts);
  return { node, paint, stop, isPlaying: () => timer !== undefined };
}
